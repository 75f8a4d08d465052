#include "app/reports/cache_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>

#include "engine/backend/call_op.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/family/dense/dense.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/io/assets_folder.h"
#include "engine/io/json_file.h"
#include "engine/model/memory.h"
#include "engine/model/numbers.h"
#include "engine/session/step/op_params.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/step_params.h"

namespace attnscope {
namespace {

using Numbers16 = std::vector<bf16_t>;

constexpr std::int64_t kPageRows = 16;
constexpr std::int64_t kPrefillChunk = 1024;
constexpr std::int64_t kCalibrated = 128;  // rows that static scales are taken of

// One cache of a layer, whose rows lie in order.
struct StudyCache {
  StudyCache(std::int32_t record, std::int64_t heads, std::int64_t size, std::int64_t rows) {
    const std::int64_t blocks = (rows + kPageRows - 1) / kPageRows;
    const as_row_layout l = as_row_layout_of(record, heads * size, heads, kPageRows);
    bytes.assign(to_size(blocks * l.page), 0);
    cache.data = make_tensor(bytes.data(), {blocks, l.page});
    cache.data.reserved = static_cast<std::int32_t>(heads);
    cache.record = record;
    cache.rows_per_block = kPageRows;
    cache.width = static_cast<std::int32_t>(heads * size);
  }
  as_tensor scale() {
    return scales.empty() ? no_tensor() : make_tensor(scales.data(), {to_count(scales.size())});
  }

  std::vector<std::uint8_t> bytes;
  std::vector<float> scales;  // beside it
  as_cache cache{};
};

// The caches of all layers in one format. Where first tokens keep 16 bits: theirs, empty in layers
// that forget them.
struct StudyRows {
  std::vector<StudyCache> keys, values;
  std::int64_t first_tokens = 0;
  std::vector<std::optional<StudyCache>> wide_keys, wide_values;
  std::int64_t made_anew = 0, other_codes = 0;  // as CacheStudyPoint
};

// A format of the study. again: the tokens with 16 bits are chosen, and made anew.
struct StudyFormat {
  std::int32_t record = AS_RECORD_BF16;
  std::int64_t first_tokens = 0;
  bool again = false;
};

// What some tokens came to: of each layer its input, its queries and the output of attention with
// the logarithm of its sum, then scores.
struct StudyRun {
  std::vector<Numbers16> inputs, queries, outputs;
  std::vector<std::vector<float>> lse;
  Numbers16 last;  // behind the last layer
  std::vector<std::int32_t> sampled;
};

double length_of(const Numbers16& x, const Numbers16* less, double* largest) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double d = cpu::bf16_to_float(x[i].bits);
    if (less != nullptr) d -= cpu::bf16_to_float((*less)[i].bits);
    if (largest != nullptr) *largest = std::max(*largest, std::fabs(d));
    sum += d * d;
  }
  return sum;
}

class DenseRun {
 public:
  DenseRun(const ModelConfig& config, const Weights& weights, std::vector<std::int32_t> text,
           bool keeps_inputs, const as_threads* threads, const StudyProgress* progress)
      : config_(config),
        weights_(weights),
        text_(std::move(text)),
        threads_(threads),
        progress_(progress),
        rows_(to_count(text_.size())),
        table_(to_size((rows_ + kPageRows - 1) / kPageRows)),
        keys_(to_size(config.num_layers())),
        values_(keys_.size()) {
    std::iota(table_.begin(), table_.end(), 0);
    const std::int64_t width = std::int64_t{config.kv_heads} * config.head_dim;
    for (auto* rows : {&keys_, &values_}) {
      for (Numbers16& of_layer : *rows) of_layer.resize(to_size(rows_ * width));
    }
    if (keeps_inputs) {
      inputs_.assign(keys_.size(), Numbers16(to_size(rows_ * std::int64_t{config.hidden})));
    }
    for (int i = 0; i < config.num_layers(); ++i) {
      as_rope& rope = ropes_.emplace_back(layer_rope(config, i));
      std::vector<float>& numbers = rope_tables_.emplace_back();
      if (rope.base == 0) continue;
      numbers.resize(to_size(rows_ * config.rope_dim));
      cpu::build_rope_table(rope, rows_, numbers.data(), threads, config.rope_dim);
      const std::int32_t rule = rope.table.reserved;
      rope.table = make_tensor(numbers.data(), {rows_, std::int64_t{config.rope_dim}});
      rope.table.reserved = rule;
    }
  }

  StudyRows empty_rows(const StudyFormat& format) const {
    StudyRows rows;
    rows.first_tokens = format.first_tokens;
    const std::int64_t heads = config_.kv_heads, dim = config_.head_dim;
    for (int i = 0; i < config_.num_layers(); ++i) {
      rows.keys.emplace_back(format.record, heads, dim, rows_);
      rows.values.emplace_back(format.record, heads, dim, rows_);
      rows.wide_keys.emplace_back();
      rows.wide_values.emplace_back();
      if (rows.first_tokens == 0 || dense_window(config_, i) > 0) continue;
      rows.wide_keys.back().emplace(AS_RECORD_BF16, heads, dim, rows.first_tokens);
      rows.wide_values.back().emplace(AS_RECORD_BF16, heads, dim, rows.first_tokens);
    }
    return rows;
  }

  // The whole text over bf16 rows; keeps what rows are made of.
  Result<void> prefill(StudyRows& rows, StudySteps& steps) {
    for (std::int64_t first = 0; first < rows_; first += kPrefillChunk) {
      if (auto ok = steps.step(); !ok) return ok;
      const std::int64_t n = std::min(kPrefillChunk, rows_ - first);
      if (auto run = forward(rows, first, n, nullptr, true); !run) return run.error();
    }
    return {};
  }

  // All rows as they were before quantisation, in another format.
  Result<StudyRows> rows_in(const StudyFormat& format) {
    StudyRows rows = empty_rows(format);
    for (int i = 0; i < config_.num_layers(); ++i) {
      calibrate(keys_[to_size(i)], rows.keys[to_size(i)]);
      calibrate(values_[to_size(i)], rows.values[to_size(i)]);
    }
    if (auto ok = put_back(rows, 0, rows_); !ok) return ok.error();
    return rows;
  }

  // Of each layer the `count` rows before `first` that got the most attention from the last tokens
  // before it, in order; of equals the first ones. before: what these came to, of no token: first
  // ones are chosen. Of any rows where it was stopped.
  std::vector<std::vector<std::int64_t>> most_attended(const StudyRun& before, std::int64_t first,
                                                       std::int64_t count) const {
    std::vector<std::vector<std::int64_t>> chosen;
    const std::int64_t kv = config_.kv_heads, dim = config_.head_dim, heads = config_.heads;
    const double cap = config_.dense.soft_cap;
    const double scale =
        config_.dense.scale > 0 ? config_.dense.scale : 1 / std::sqrt(static_cast<double>(dim));
    for (int i = 0; i < config_.num_layers(); ++i) {
      std::vector<double> mass(to_size(first), 0.0);
      const Numbers16* q = before.queries.empty() ? nullptr : &before.queries[to_size(i)];
      const std::int64_t n = q == nullptr ? 0 : to_count(q->size()) / (heads * dim);
      for (std::int64_t t = 0; t < n && !stopped(); ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const float lse = before.lse[to_size(i)][to_size(t * heads + h)];
          const bf16_t* query = q->data() + (t * heads + h) * dim;
          for (std::int64_t p = 0; p <= first - n + t; ++p) {
            const bf16_t* key = keys_[to_size(i)].data() + (p * kv + h / (heads / kv)) * dim;
            float sum = 0;
            for (std::int64_t d = 0; d < dim; ++d) {
              sum += cpu::bf16_to_float(query[d].bits) * cpu::bf16_to_float(key[d].bits);
            }
            double score = scale * double{sum};
            if (cap > 0) score = cap * std::tanh(score / cap);
            mass[to_size(p)] += std::exp(score - double{lse});
          }
        }
      }
      std::vector<std::int64_t>& of_layer = chosen.emplace_back(to_size(first));
      std::iota(of_layer.begin(), of_layer.end(), 0);
      std::ranges::stable_sort(of_layer, [&](std::int64_t a, std::int64_t b) {
        return mass[to_size(a)] > mass[to_size(b)];
      });
      of_layer.resize(to_size(std::min(count, first)));
      std::ranges::sort(of_layer);
    }
    return chosen;
  }

  // Rows of the first `length` tokens, the chosen ones before all others, so that they are those
  // that attention reads in 16 bits: order changes nothing of what tokens behind all of these see.
  // Keys and values of the chosen ones are made of the layer's inputs.
  Result<StudyRows> rows_again(const StudyFormat& format, std::int64_t length,
                               const std::vector<std::vector<std::int64_t>>& chosen) {
    StudyFormat own = format;
    own.first_tokens = to_count(chosen.front().size());
    StudyRows rows = empty_rows(own);
    for (int i = 0; i < config_.num_layers(); ++i) {
      calibrate(keys_[to_size(i)], rows.keys[to_size(i)]);
      calibrate(values_[to_size(i)], rows.values[to_size(i)]);
      place(0, length);
      const bool all_seen = rows.wide_keys[to_size(i)].has_value();
      const std::vector<std::int64_t>& front = chosen[to_size(i)];
      for (std::int64_t p = 0, before = 0; all_seen && p < length; ++p) {
        const bool is_chosen = before < to_count(front.size()) && front[to_size(before)] == p;
        slots_[to_size(p)] = is_chosen ? before++ : own.first_tokens + p - before;
      }
      if (auto ok = put_given(i, rows, 0, length); !ok) return ok.error();
      if (!all_seen) continue;
      if (auto ok = make_anew(i, rows, front); !ok) return ok.error();
    }
    return rows;
  }

  // Rows first .. first + n - 1 as they were.
  Result<void> put_back(StudyRows& rows, std::int64_t first, std::int64_t n) {
    for (int i = 0; i < config_.num_layers(); ++i) {
      if (auto ok = insert_given(i, rows, first, n); !ok) return ok;
    }
    return {};
  }

  // Tokens at first .. first + n - 1, whose rows take the place of those that are there. given: the
  // inputs of layers in the place of what the layers before made. keep: what rows are made of.
  Result<StudyRun> forward(StudyRows& rows, std::int64_t first, std::int64_t n,
                           const StudyRun* given, bool keep) {
    StudyRun run;
    const std::int64_t hidden = config_.hidden;
    Numbers16 h(to_size(n * hidden));
    for (std::int64_t t = 0; t < n; ++t) {
      std::copy_n(weights_.embedding() + text_[to_size(first + t)] * hidden, hidden,
                  h.data() + t * hidden);
    }
    for (int i = 0; i < config_.num_layers(); ++i) {
      if (given != nullptr) h = given->inputs[to_size(i)];
      run.inputs.push_back(h);
      if (keep && !inputs_.empty()) {
        std::ranges::copy(h, inputs_[to_size(i)].begin() + first * hidden);
      }
      if (auto ok = layer(i, rows, first, n, h, run, keep); !ok) return ok.error();
    }
    run.last = h;
    if (auto ok = sample(n, h, run); !ok) return ok.error();
    return run;
  }

 private:
  bool stopped() const { return progress_ != nullptr && progress_->stopped; }

  template <class S>
  S& start(as_op_id op, int layer) {
    S& p = params_.init<S>(op);
    family_of(config_).set_layer_numbers(op, layer, config_, kPageRows, params_.data());
    return p;
  }
  Result<void> call() {
    if (stopped()) return stopped_error();
    return call_op(cpu::lane()->ops[params_.op()], params_.data(), host_call(threads_));
  }

  as_tensor weight(int layer, const char* name) const {
    return layer < 0 ? weights_.around[name].tensor() : weights_.find(layer, name).tensor();
  }

  Result<void> norm(as_op_id op, int layer, const char* name, const Numbers16& x, Numbers16& y) {
    auto& p = start<as_rms_norm_params>(op, layer < 0 ? 0 : layer);
    const std::int64_t n = to_count(x.size()) / config_.hidden;
    y.resize(x.size());
    p.x = make_tensor(x.data(), {n, std::int64_t{config_.hidden}});
    p.weight = weight(layer, name);
    p.y = make_tensor(y.data(), {n, std::int64_t{config_.hidden}});
    return call();
  }

  Result<void> linear(as_op_id op, int layer, const char* name, const Numbers16& x, std::int64_t in,
                      std::int64_t out, Numbers16& y) {
    auto& p = start<as_linear_params>(op, layer);
    const std::int64_t n = to_count(x.size()) / in;
    y.resize(to_size(n * out));
    p.x = make_tensor(x.data(), {n, in});
    p.weight = weight(layer, name);
    p.y = make_tensor(y.data(), {n, out});
    return call();
  }

  static as_tensor heads(Numbers16& x, std::int64_t n, std::int64_t heads) {
    return make_tensor(x.data(), {n, heads, to_count(x.size()) / (n * heads)});
  }

  // Places of n tokens from `first` on.
  void place(std::int64_t first, std::int64_t n) {
    positions_.resize(to_size(n));
    std::iota(positions_.begin(), positions_.end(), first);
    slots_ = positions_;
    requests_.assign(to_size(n), 0);
    length_ = static_cast<std::int32_t>(first + n);
  }

  Result<void> insert_given(int i, StudyRows& rows, std::int64_t first, std::int64_t n) {
    place(first, n);
    return put_given(i, rows, first, n);
  }

  // Into the slots that are set.
  Result<void> put_given(int i, StudyRows& rows, std::int64_t first, std::int64_t n) {
    auto& p = start<as_rope_kv_insert_params>(AS_OP_ROPE_KV_INSERT, i);
    const std::int64_t width = std::int64_t{config_.kv_heads} * config_.head_dim;
    bf16_t* keys = keys_[to_size(i)].data() + first * width;
    bf16_t* values = values_[to_size(i)].data() + first * width;
    const std::int64_t kv = config_.kv_heads, dim = config_.head_dim;
    p.k_row = make_tensor(keys, {n, kv, dim});
    p.v = make_tensor(values, {n, kv, dim});
    p.rows_given = 1;
    set_rows(i, rows, n, p);
    return call();
  }

  void set_rows(int i, StudyRows& rows, std::int64_t n, as_rope_kv_insert_params& p) {
    StudyCache &k = rows.keys[to_size(i)], &v = rows.values[to_size(i)];
    p.slots = make_tensor(slots_.data(), {n});
    p.k_cache = k.cache;
    p.v_cache = v.cache;
    p.k_scale = k.scale();
    p.v_scale = v.scale();
    if (!rows.wide_keys[to_size(i)]) return;
    first_slots_ = slots_;
    for (std::int64_t& slot : first_slots_) slot = slot < rows.first_tokens ? slot : -1;
    p.wide_slots = make_tensor(first_slots_.data(), {n});
    p.k_wide = rows.wide_keys[to_size(i)]->cache;
    p.v_wide = rows.wide_values[to_size(i)]->cache;
  }

  // Queries, keys and values of tokens whose places are set, and rows of the latter two.
  struct Made {
    Numbers16 q, v, k_row;
  };
  Result<void> make_rows(int i, StudyRows& rows, const Numbers16& h, Made& made) {
    const std::int64_t hidden = config_.hidden, dim = config_.head_dim;
    const std::int64_t q_heads = config_.heads, kv = config_.kv_heads;
    const std::int64_t n = to_count(h.size()) / hidden;
    Numbers16 x, q, k;
    made.q.resize(to_size(n * q_heads * dim));
    made.k_row.resize(to_size(n * kv * dim));
    if (auto ok = norm(AS_OP_ATTN_NORM, i, "attn_norm", h, x); !ok) return ok;
    if (auto ok = linear(AS_OP_Q_PROJ, i, "q_proj", x, hidden, q_heads * dim, q); !ok) return ok;
    if (auto ok = linear(AS_OP_K_PROJ, i, "k_proj", x, hidden, kv * dim, k); !ok) return ok;
    if (auto ok = linear(AS_OP_V_PROJ, i, "v_proj", x, hidden, kv * dim, made.v); !ok) return ok;
    auto& p = start<as_rope_kv_insert_params>(AS_OP_ROPE_KV_INSERT, i);
    p.q = heads(q, n, q_heads);
    p.k = heads(k, n, kv);
    p.v = heads(made.v, n, kv);
    p.q_weight = weight(i, "q_norm");
    p.k_weight = weight(i, "k_norm");
    p.positions = make_tensor(positions_.data(), {n});
    p.rope = ropes_[to_size(i)];
    p.q_out = heads(made.q, n, q_heads);
    p.k_row = heads(made.k_row, n, kv);
    set_rows(i, rows, n, p);
    return call();
  }

  static std::vector<std::vector<std::uint8_t>> bytes_of_first(const StudyCache& of,
                                                               std::size_t count) {
    std::vector<std::vector<std::uint8_t>> rows(count);
    for (std::size_t slot = 0; slot < count; ++slot) {
      rows[slot].resize(to_size(as_cache_row_bytes(&of.cache)));
      as_row_get(&of.cache, to_count(slot), rows[slot].data());
    }
    return rows;
  }

  // Of tokens whose rows are the first ones.
  Result<void> make_anew(int i, StudyRows& rows, const std::vector<std::int64_t>& tokens) {
    const std::int64_t hidden = config_.hidden;
    Numbers16 h;
    for (const std::int64_t token : tokens) {
      const bf16_t* input = inputs_[to_size(i)].data() + token * hidden;
      h.insert(h.end(), input, input + hidden);
    }
    const StudyCache &k = rows.keys[to_size(i)], &v = rows.values[to_size(i)];
    const auto k_before = bytes_of_first(k, tokens.size());
    const auto v_before = bytes_of_first(v, tokens.size());
    place(0, to_count(tokens.size()));
    positions_ = tokens;
    Made made;
    if (auto ok = make_rows(i, rows, h, made); !ok) return ok;
    const auto k_after = bytes_of_first(k, tokens.size());
    const auto v_after = bytes_of_first(v, tokens.size());
    for (std::size_t slot = 0; slot < tokens.size(); ++slot) {
      rows.other_codes += k_before[slot] != k_after[slot] ? 1 : 0;
      rows.other_codes += v_before[slot] != v_after[slot] ? 1 : 0;
    }
    rows.made_anew += 2 * to_count(tokens.size());
    return {};
  }

  // h: its input, then its output.
  Result<void> layer(int i, StudyRows& rows, std::int64_t first, std::int64_t n, Numbers16& h,
                     StudyRun& run, bool keep) {
    const std::int64_t hidden = config_.hidden, dim = config_.head_dim;
    const std::int64_t q_heads = config_.heads, kv = config_.kv_heads;
    Numbers16 y;
    Numbers16& o = run.outputs.emplace_back(to_size(n * q_heads * dim));
    std::vector<float> lse(to_size(n * q_heads));
    place(first, n);
    Made made;
    if (auto ok = make_rows(i, rows, h, made); !ok) return ok;
    if (keep) {
      std::ranges::copy(made.k_row, keys_[to_size(i)].begin() + first * kv * dim);
      std::ranges::copy(made.v, values_[to_size(i)].begin() + first * kv * dim);
    }
    {
      auto& p = start<as_paged_attention_params>(AS_OP_PAGED_ATTENTION, i);
      p.q = heads(made.q, n, q_heads);
      p.k_cache = rows.keys[to_size(i)].cache;
      p.v_cache = rows.values[to_size(i)].cache;
      p.k_scale = rows.keys[to_size(i)].scale();
      p.v_scale = rows.values[to_size(i)].scale();
      p.table = make_tensor(table_.data(), {std::int64_t{1}, to_count(table_.size())});
      if (rows.wide_keys[to_size(i)]) {
        p.k_wide = rows.wide_keys[to_size(i)]->cache;
        p.v_wide = rows.wide_values[to_size(i)]->cache;
        p.wide_table = p.table;
        p.wide_tokens = static_cast<std::int32_t>(rows.first_tokens);
      }
      p.token_to_req = make_tensor(requests_.data(), {n});
      p.positions = make_tensor(positions_.data(), {n});
      p.seq_lens = make_tensor(&length_, {std::int64_t{1}});
      p.sinks = weight(i, "sinks");
      p.alibi_slopes = weight(i, "alibi_slopes");
      p.o = heads(o, n, q_heads);
      p.lse = make_tensor(lse.data(), {n, q_heads});
      if (auto ok = call(); !ok) return ok;
    }
    if (!keep) {
      run.queries.push_back(std::move(made.q));
      run.lse.push_back(std::move(lse));
    }
    if (auto ok = linear(AS_OP_O_PROJ, i, "o_proj", o, q_heads * dim, hidden, y); !ok) return ok;
    auto& p = start<as_residual_params>(AS_OP_RESIDUAL, i);
    p.h = p.out = make_tensor(h.data(), {n, hidden});
    p.y = make_tensor(y.data(), {n, hidden});
    return call();
  }

  Result<void> sample(std::int64_t n, const Numbers16& h, StudyRun& run) {
    Numbers16 x;
    if (auto ok = norm(AS_OP_FINAL_NORM, -1, "final_norm", h, x); !ok) return ok;
    const std::int64_t words = config_.vocabulary, hidden = config_.hidden;
    std::vector<float> logits(to_size(n * words));
    auto& p = start<as_linear_params>(AS_OP_LM_HEAD, 0);
    p.x = make_tensor(x.data(), {n, hidden});
    p.weight = weight(-1, config_.dense.tied ? "embedding" : "lm_head");
    p.y = make_tensor(logits.data(), {n, words});
    if (auto ok = call(); !ok) return ok;
    for (auto row = logits.begin(); row != logits.end(); row += words) {
      run.sampled.push_back(static_cast<std::int32_t>(std::max_element(row, row + words) - row));
    }
    return {};
  }

  // Scales beside a cache, of the first rows that it will have.
  void calibrate(const Numbers16& rows, StudyCache& cache) const {
    const as_row_part& part = as_row_format_of(cache.cache.record)->parts[0];
    if (part.scale == AS_CODE_NONE || part.per == AS_PER_BLOCK) return;
    const double most = part.code == AS_CODE_E4M3 ? 448 : 57344;
    const std::int64_t dim = config_.head_dim, width = dim * config_.kv_heads;
    cache.scales.assign(part.per == AS_PER_HEAD ? to_size(config_.kv_heads) : 1, 1e-6f);
    for (std::int64_t i = 0; i < std::min(kCalibrated, rows_) * width; ++i) {
      float& scale = cache.scales[part.per == AS_PER_HEAD ? to_size(i % width / dim) : 0];
      const double x = std::fabs(double{cpu::bf16_to_float(rows[to_size(i)].bits)});
      scale = std::max(scale, static_cast<float>(x / most));
    }
  }

  const ModelConfig& config_;
  const Weights& weights_;
  const std::vector<std::int32_t> text_;
  const as_threads* threads_;
  const StudyProgress* progress_;
  const std::int64_t rows_;
  std::vector<std::int32_t> table_, requests_;
  std::vector<std::int64_t> positions_, slots_, first_slots_;
  std::int32_t length_ = 0;
  std::vector<Numbers16> keys_, values_;  // of all rows before quantisation, by layer
  std::vector<Numbers16> inputs_;         // of layers, of all tokens; empty: they are not kept
  std::vector<as_rope> ropes_;
  std::vector<std::vector<float>> rope_tables_;
  OpParams params_;
};

// The bytes of the texts that prompts are cut from.
Result<std::vector<std::int32_t>> study_text(std::int64_t length) {
  const auto assets = assets_folder();
  if (!assets) return assets.error();
  std::vector<std::int32_t> text;
  for (const char* file : {"/manual.md", "/prompts.md"}) {
    const auto read = read_text_file(*assets + file);
    if (!read) return read.error();
    for (const char c : *read) text.push_back(static_cast<unsigned char>(c));
  }
  const std::size_t own = text.size();
  while (to_count(text.size()) < length) text.push_back(text[text.size() - own]);
  text.resize(to_size(length));
  return text;
}

Result<Weights> study_weights(const Scenario& scenario, const as_threads* threads) {
  if (scenario.checkpoint.empty()) {
    Weights made = synthetic_weights(scenario.model, scenario.seed, threads);
    shift_sinks(scenario.model, made);
    return made;
  }
  auto checkpoint = Checkpoint::open(scenario.checkpoint, scenario.model);
  if (!checkpoint) return checkpoint.error();
  auto loaded = load_weights(**checkpoint, scenario.model, threads);
  if (!loaded) return loaded.error();
  return std::move(loaded->weights);
}

// All formats as they are, then those with some tokens in 16 bits, where a layer sees these to the
// end: first ones, and chosen ones.
std::vector<StudyFormat> study_formats(const ModelConfig& config,
                                       const CacheStudyOptions& options) {
  std::vector<StudyFormat> formats;
  for (const std::int32_t record : dense_cache_records()) formats.push_back({record, 0});
  bool sees_all = false;
  for (int i = 0; i < config.num_layers(); ++i) sees_all |= dense_window(config, i) == 0;
  for (const bool again : {false, true}) {
    const std::int64_t tokens = again ? options.again_tokens : options.first_tokens;
    if (!sees_all || tokens == 0) continue;
    for (const std::int32_t record :
         {AS_RECORD_FP8_TENSOR, AS_RECORD_FP8_TOKEN_HEAD, AS_RECORD_INT8_TOKEN_HEAD}) {
      formats.push_back({record, tokens, again});
    }
  }
  return formats;
}

// Of one layer, keys and values.
std::int64_t bytes_of_token(const ModelConfig& config, std::int32_t record) {
  const std::int64_t width = std::int64_t{config.kv_heads} * config.head_dim;
  return 2 * as_row_layout_of(record, width, config.kv_heads, 1).row;
}

CacheStudyFormat described(const ModelConfig& config, const StudyFormat& format) {
  CacheStudyFormat of;
  of.name = as_row_format_of(format.record)->name;
  of.bytes_per_token = bytes_of_token(config, format.record) * config.num_layers();
  if (format.first_tokens == 0) return of;
  of.name += fmt::format("+{}{}", format.again ? "again" : "first", format.first_tokens);
  of.first_tokens = format.first_tokens;
  const std::int64_t hidden = config.hidden,
                     width = std::int64_t{config.kv_heads} * config.head_dim;
  for (int i = 0; i < config.num_layers(); ++i) {
    if (dense_window(config, i) > 0) continue;
    of.first_bytes += bytes_of_token(config, AS_RECORD_BF16);
    if (!format.again) continue;
    of.input_bytes += hidden * as_dtype_size(AS_BF16);
    of.again_products += 2 * format.first_tokens * hidden * width;
  }
  return of;
}

CacheStudyPoint compared(std::int64_t length, const StudyRun& bf16, const StudyRun& forced,
                         const StudyRun& free) {
  CacheStudyPoint point;
  point.length = length;
  double off = 0, all = 0;
  for (std::size_t i = 0; i < bf16.outputs.size(); ++i) {
    off += length_of(forced.outputs[i], &bf16.outputs[i], &point.largest);
    all += length_of(bf16.outputs[i], nullptr, nullptr);
  }
  point.error = std::sqrt(off / all);
  point.carried =
      std::sqrt(length_of(free.last, &bf16.last, nullptr) / length_of(bf16.last, nullptr, nullptr));
  for (std::size_t t = 0; t < bf16.sampled.size(); ++t) {
    point.changed += bf16.sampled[t] != free.sampled[t] ? 1 : 0;
  }
  return point;
}

}  // namespace

Result<void> fits_cache_study(const ModelConfig& c, const CacheStudyOptions& options) {
  const DenseAttention& d = c.dense;
  const bool plain = c.family == "dense" && !d.encoder && d.sides.empty() && d.mask.empty() &&
                     d.score.empty() && d.shared_layers == 0 && dense_chunk(c) == 0;
  if (!plain) {
    return bad_input(fmt::format("{}: formats of rows are studied of dense decoders whose layers "
                                 "have keys and values of their own, without chunks and masks",
                                 c.name),
                     "take tiny-llama, tiny-gemma, tiny-gptoss or a checkpoint of such a model");
  }
  if (options.first_tokens < 0 || options.first_tokens > c.max_position) {
    return bad_input(fmt::format("{} first tokens in 16 bits; allowed: 0 to {} (positions of {})",
                                 options.first_tokens, c.max_position, c.name));
  }
  if (options.again_tokens < 0 || options.again_tokens > c.max_position) {
    return bad_input(fmt::format("{} tokens made anew; allowed: 0 to {} (positions of {})",
                                 options.again_tokens, c.max_position, c.name));
  }
  if (options.again_tokens > 0 && d.alibi_bias_max > 0) {
    return bad_input(fmt::format("{} has ALiBi, whose slopes ask where rows lie: chosen tokens do "
                                 "not change places",
                                 c.name),
                     "leave out tokens that are made anew");
  }
  // Each once: adjacent ones of which the second is not larger are out of order.
  const bool ascending =
      std::ranges::adjacent_find(options.lengths, std::greater_equal<>()) == options.lengths.end();
  if (options.lengths.empty() || !ascending || options.lengths.front() < options.tokens ||
      options.lengths.back() > c.max_position) {
    return bad_input(
        fmt::format("lengths are ascending, each once, from {} (the tokens looked at) to {} "
                    "(positions of {})",
                    options.tokens, c.max_position, c.name));
  }
  return {};
}

Result<CacheStudy> study_cache_formats(const Scenario& scenario, const CacheStudyOptions& options,
                                       const as_threads* threads, StudyProgress* progress) {
  Scenario plain = scenario;
  plain.model.dense.cache_record = AS_RECORD_BF16;
  plain.model.dense.first_tokens_16bit = 0;
  const ModelConfig& config = plain.model;
  if (auto ok = fits_cache_study(config, options); !ok) return ok.error();
  if (auto ok = check_memory(2 * parameter_count(config)); !ok) return ok.error();
  const auto weights = study_weights(plain, threads);
  if (!weights) return weights.error();
  auto text = study_text(options.lengths.back());
  if (!text) return text.error();
  DenseRun run(config, *weights, std::move(*text), options.again_tokens > 0, threads, progress);
  StudyRows plain_rows = run.empty_rows({});
  const std::vector<StudyFormat> formats = study_formats(config, options);
  const std::int64_t chunks = (options.lengths.back() + kPrefillChunk - 1) / kPrefillChunk;
  const std::int64_t lengths = to_count(options.lengths.size());
  StudySteps steps(progress, chunks + to_count(formats.size()) * lengths);
  if (auto ok = run.prefill(plain_rows, steps); !ok) return ok.error();
  std::vector<StudyRun> bf16;
  std::vector<std::vector<std::vector<std::int64_t>>> chosen;  // by length and layer
  for (const std::int64_t length : options.lengths) {
    const std::int64_t before = length - 2 * options.tokens;
    if (options.again_tokens > 0) {
      StudyRun attended;
      if (before >= 0) {
        auto own = run.forward(plain_rows, before, options.tokens, nullptr, false);
        if (!own) return own.error();
        attended = std::move(*own);
        if (auto ok = run.put_back(plain_rows, before, options.tokens); !ok) return ok.error();
      }
      chosen.push_back(run.most_attended(attended, length - options.tokens, options.again_tokens));
    }
    auto own = run.forward(plain_rows, length - options.tokens, options.tokens, nullptr, false);
    if (!own) return own.error();
    bf16.push_back(std::move(*own));
    // Other sums than those of longer chunks: rows are what they were.
    if (auto ok = run.put_back(plain_rows, length - options.tokens, options.tokens); !ok) {
      return ok.error();
    }
  }
  CacheStudy study{config.name, options.tokens, {}};
  for (const StudyFormat& one : formats) {
    CacheStudyFormat& format = study.formats.emplace_back(described(config, one));
    auto rows = run.rows_in(one.again ? StudyFormat{one.record} : one);
    if (!rows) return rows.error();
    for (std::size_t i = 0; i < options.lengths.size(); ++i) {
      if (auto ok = steps.step(); !ok) return ok.error();
      if (one.again) {
        rows = run.rows_again(one, options.lengths[i], chosen[i]);
        if (!rows) return rows.error();
      }
      const std::int64_t first = options.lengths[i] - options.tokens;
      std::optional<StudyRun> runs[2];
      for (int k = 0; k < 2; ++k) {
        auto done = run.forward(*rows, first, options.tokens, k == 0 ? &bf16[i] : nullptr, false);
        if (!done) return done.error();
        runs[k] = std::move(*done);
        if (auto ok = run.put_back(*rows, first, options.tokens); !ok) return ok.error();
      }
      CacheStudyPoint& point =
          format.points.emplace_back(compared(options.lengths[i], bf16[i], *runs[0], *runs[1]));
      point.made_anew = rows->made_anew;
      point.other_codes = rows->other_codes;
    }
  }
  return study;
}

}  // namespace attnscope
