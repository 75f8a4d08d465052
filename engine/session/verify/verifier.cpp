#include "engine/session/verify/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "engine/checkpoint/hidden_states.h"
#include "engine/session/step/listed_attention.h"
#include "engine/session/step/op_change.h"
#include "engine/session/step/output_poison.h"
#include "engine/session/step/tensor_parallel_sum.h"
#include "engine/session/verify/free_run.h"
#include "engine/session/verify/judging.h"
#include "engine/session/verify/kept_rows.h"
#include "engine/session/verify/recorded_rows.h"
#include "engine/session/verify/row_checks.h"
#include "engine/trace/recheck.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/op_table.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Of rows of a cache, by the name of their tap: "k_cache", or "k_cache.rank1" of a peer's.
std::string tap_of(const as_tap_info& tap, const CacheSpec& spec) {
  return spec.peer < 0 ? std::string(tap.name)
                       : fmt::format("{}{}{}", tap.name, kRankTap, spec.peer);
}

constexpr std::int64_t kPoisonedAtOnce = std::int64_t{1} << 20;  // bytes

void poison_outputs(const OpParams& params, bool second, const as_threads* threads) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_TENSOR) continue;
    const as_tensor& t = params.tensor(tap.offset);
    if (!present(t)) continue;
    const std::uint8_t byte = poison_byte(tap, t.dtype, second);
    const std::int64_t bytes = as_tensor_numel(&t) * as_dtype_size(t.dtype);
    cpu::parallel_for(threads, bytes, kPoisonedAtOnce, [&](std::int64_t begin, std::int64_t end) {
      std::memset(static_cast<char*>(t.data) + begin, byte, static_cast<std::size_t>(end - begin));
    });
  }
}

}  // namespace

void Verifier::watch_weights_anew() {
  if (weights_) begin_weights();
}

void Verifier::watch_memory() {
  if (!weights_) begin_weights();
}

void Verifier::begin_step(std::int64_t step_number) {
  step_number_ = step_number;
  step_ = nullptr;
  results_.clear();
  results_.reserve(usual_results_);
  swapped_ = {};
  unchanged_.begin_step();
  tables_checked_.clear();
  in_step_ = true;
  if (step_number == 0) results_ = loaded_;
  for (TapResult& result : pending_) found(std::move(result));
  pending_.clear();
}

void Verifier::found(TapResult result) {
  if (!in_step_) {
    pending_.push_back(std::move(result));
    return;
  }
  result.step = step_number_;
  results_.push_back(std::move(result));
}

void Verifier::went_back() {
  drop_judging();  // nobody wants to know any more
  in_step_ = false;
  pending_.clear();
  bad_slots_.clear();
}

void Verifier::say_where(int layer, TapResult& result) const {
  result.step = step_number_;
  result.layer = layer < 0 ? -1 : parts_.config.layers[static_cast<std::size_t>(layer)];
}

void Verifier::given(int layer, TapResult result) {
  say_where(layer, result);
  results_.push_back(std::move(result));
}

void Verifier::check_given(int layer, const OpParams& params) {
  look_at_weights(layer, params);
  if (references_ == References::kNone) return;
  if (params.op() == AS_OP_EXCHANGE_ROWS) {
    // The session has written these for this layer, where those of the layer before lay.
    const auto& p = params.get<as_exchange_rows_params>();
    for (const as_tensor* t : {&p.places, &p.fresh_from, &p.pages_to, &p.missed_from, &p.pool_to}) {
      unchanged_.wrote(*t, params.op());
    }
  }
  for (TapResult& r : unchanged_.before(params, input_hashes_, *step_)) given(layer, std::move(r));
  if (params.op() == AS_OP_ATTN_NORM && layer == 0) {
    const as_tensor& h = params.get<as_rms_norm_params>().x;
    auto r = h.device == 0 ? check_embedded(h, *step_, *parts_.weights) : std::nullopt;
    if (r) given(-1, std::move(*r));
  }
  if (params.op() == AS_OP_EXCHANGE_ROWS) {
    const auto& p = params.get<as_exchange_rows_params>();
    std::string wrong = check_places(p, *parts_.layout.find(layer, CacheId{}), shadow_, space_);
    if (!wrong.empty()) {
      given(layer, wrong_result(params.op(), std::string("places") + kMetadataTap,
                                as_tensor_numel(&p.places), 1, std::move(wrong)));
    }
  }
  // Of the table that a layer's ops share, the first one that has it.
  if (layer < 0 || as_rope_offset(params.op()) == 0) return;
  const auto& ops = parts_.graph->layer(layer).ops();
  const auto first = std::ranges::find_if(ops, [](as_op_id op) { return as_rope_offset(op) != 0; });
  if (*first != params.op()) return;
  const as_rope& rope = parts_.ropes[static_cast<std::size_t>(layer)];
  if (rope.base == 0 || !tables_checked_.insert(rope.table.data).second) return;
  if (auto r = check_rope(params.op(), rope, *step_, *parts_.exact, parts_.threads)) {
    given(layer, std::move(*r));
  }
}

// Between two steps nobody writes to them.
void Verifier::rest_rows(const Serving& serving, std::span<const std::int32_t> requests) {
  for (const std::int32_t id : requests) {
    const Request& request = serving.requests()[static_cast<std::size_t>(id)];
    const bool over = is_over(request.state);
    shadow_.rest_before(request.id, request.computed, over);
    for (History* history : free_histories()) {
      if (history != nullptr) history->rest_before(request.id, request.computed, over);
    }
  }
}

void Verifier::rest_again(const Serving& serving) {
  if (!rests_) return;
  shadow_.touched();
  for (History* history : free_histories()) {
    if (history != nullptr) history->touched();
  }
  std::vector<std::int32_t> all(serving.requests().size());
  std::iota(all.begin(), all.end(), 0);
  rest_rows(serving, all);
}

void Verifier::begin_tokens(const StepMetadata& step, const Serving& serving) {
  step_ = &step;
  if (rests_) {
    rest_rows(serving, step.live);
    std::erase_if(rest_next_, [&](std::int32_t id) {
      return !is_over(serving.requests()[static_cast<std::size_t>(id)].state);
    });
    rest_rows(serving, rest_next_);
    rest_next_ = step.live;
  }
  if (weights_) look_at_embedding();
  if (references_ != References::kNone) {
    for (TapResult& r : check_tokens(step, serving)) given(-1, std::move(r));
  }
  logical_ = logical_metadata(step, space_, parts_.layout);
  parts_.graph->family->logical_lists(step, parts_.config, logical_);
  for (FreeRun* run : {free_sim_.get(), free_exact_.get()}) {
    if (run == nullptr) continue;
    run->frame.drop_outgrown();
    const std::int64_t hidden = parts_.config.hidden;
    as_tensor h =
        run->frame.make(parts_.graph->hidden, AS_BF16, {step.num_tokens_in_step(), hidden});
    for (std::int64_t t = 0; t < h.shape[0]; ++t) {
      const bf16_t* row =
          parts_.weights->embedding() + step.tokens[static_cast<std::size_t>(t)] * hidden;
      if (run->frame.kind() == Frame::Kind::kSim) {
        std::copy_n(row, hidden, at<bf16_t>(h, t));
        continue;
      }
      std::transform(row, row + hidden, at<double>(h, t),
                     [](bf16_t v) { return cpu::bf16_to_float(v.bits); });
    }
  }
}

void Verifier::begin_drafts(const Serving& serving, const as_tensor& sampled) {
  if (references_ != References::kNone) {
    for (TapResult& r : check_next(*step_, serving, sampled)) given(-1, std::move(r));
  }
  const auto next = std::ranges::find(step_->own, StepTensor::Kind::kNext, &StepTensor::kind);
  logical_.own[static_cast<std::size_t>(next - step_->own.begin())].numbers = next->numbers;
}

void Verifier::begin_blocks(const Serving& serving, const Slab& slab) {
  const ServingStep& step = serving.step();
  if (auto r = check_drafted_hits(parts_.config, parts_.layout, serving)) found(std::move(*r));
  for (const std::int32_t block : step.fresh) shadow_.forget_block(block);
  prefix_reuse_.begin_step(step.shared);
  if (prefix_reuse_.empty()) return;
  for (const CacheSpec& spec : parts_.layout.specs) {
    prefix_reuse_.apply(spec, slab.cache(spec), false, shadow_, free_histories());
  }
}

void Verifier::rank_part(int layer, const as_linear_params& wo_b) {
  if (references_ != References::kNone) sums_.part(layer, wo_b);
}

void Verifier::leave_out(const std::vector<bool>& tokens) {
  huge_inputs_.resize(std::max(huge_inputs_.size(), tokens.size()));
  for (std::size_t t = 0; t < tokens.size(); ++t) huge_inputs_[t] = huge_inputs_[t] || tokens[t];
}

void Verifier::summed(int layer, const as_tensor& y) {
  if (references_ == References::kNone) return;
  unchanged_.wrote(y, parts_.graph->sum.made_by);
  if (auto r = sums_.summed(layer, y)) given(layer, std::move(*r));
}

void Verifier::replay_input(int layer, const as_tensor& fed) {
  if (auto r = parts_.recorded->differing(layer, fed, *step_)) given(layer, std::move(*r));
  unchanged_.begin_step();  // the session itself has put recorded rows in the place of others
  for (const FreeRun* run : {free_sim_.get(), free_exact_.get()}) {
    if (run == nullptr) continue;
    const as_tensor rows = run->frame.get(parts_.graph->layer_input);
    for (std::int64_t t = 0; t < rows.shape[0]; ++t) {
      const std::int32_t request = logical_.requests[static_cast<std::size_t>(t)];
      const std::int64_t position = step_->positions[static_cast<std::size_t>(t)];
      if (run->frame.kind() == Frame::Kind::kSim) {
        parts_.inputs->row(layer, request, position, at<bf16_t>(rows, t));
      } else {
        parts_.inputs->row(layer, request, position, at<double>(rows, t));
      }
    }
  }
}

TapResult Verifier::blank(int layer, const OpParams& params, const char* tap,
                          const as_tensor& tensor, const std::string& lane) const {
  TapResult result;
  result.step = step_number_;
  result.layer = layer < 0 ? -1 : parts_.config.layers[static_cast<std::size_t>(layer)];
  result.op = params.op();
  result.tap = tap;
  result.lane = lane;
  result.shape.assign(tensor.shape, tensor.shape + tensor.rank);
  result.dtype = as_dtype_name(tensor.dtype);
  return result;
}

TapResult Verifier::rows_result(int layer, const OpParams& params, const std::string& tap,
                                const as_cache& cache, const RowCheck& check,
                                const std::string& lane) const {
  const as_tensor shape =
      make_tensor(cache.data.data, AS_U8, {check.rows, as_cache_row_bytes(&cache)});
  TapResult result = blank(layer, params, tap.c_str(), shape, lane);
  result.elements = check.rows;
  result.tolerance = "bytes";
  result.introduced = ErrorFigures{0, 0, 0, check.bad, check.bad};
  result.verdict = check.bad == 0 ? Verdict::kEqual : Verdict::kWrong;
  result.budget_used = check.bad == 0 ? 0 : std::numeric_limits<double>::infinity();
  result.note = check.note;
  return result;
}

Result<void> Verifier::before(int layer, const OpParams& params, const std::string& lane,
                              bool apart) {
  if (!weights_) return {};
  bad_rows_ = false;
  inputs_kept_ = apart;
  const bool referred = references_ != References::kNone;
  if (referred) {
    input_hashes_ = hash_inputs(params, parts_.threads);
    huge_inputs_ = huge_rows(params, parts_.threads);
  }
  if (step_ != nullptr) {
    check_given(layer, params);
    check_rows(layer, params, lane, -1);
  }
  if (auto ok = settle_in_place(params, apart); !ok) return ok;
  if (referred) poison_outputs(params, (step_number_ + layer) % 2 != 0, parts_.threads);
  return {};
}

void Verifier::check_rows(int layer, const OpParams& params, const std::string& lane, int peer) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (!params.has_rows(tap)) continue;
    const as_cache& cache = params.cache(tap.offset);
    const CacheSpec& spec = spec_of(layer, params, tap, peer);
    const bool own = spec.peer == peer;
    if (tap.direction == AS_TAP_OUT) {
      if (own) check_between(layer, params, tap, spec, lane);
      continue;
    }
    if (!own && references_ == References::kNone) continue;
    const RowCheck check =
        check_rows_read(params, tap.offset, spec, cache, shadow_, space_, *step_);
    bad_rows_ = bad_rows_ || check.bad > 0;
    // Said of the rank that is seen, where it is this one's cache. What is right of a peer is not
    // counted. Without references nothing is compared, and no tap says that something was.
    if (!own || (check.bad == 0 && (peer >= 0 || references_ == References::kNone))) continue;
    results_.push_back(rows_result(layer, params, tap_of(tap, spec) + ".read", cache, check, lane));
  }
}

Result<void> Verifier::after(int layer, const OpParams& params, const std::string& lane) {
  const as_op_info& info = params.info();
  if (references_ != References::kNone) {
    if (!inputs_kept_) {
      const std::vector<RowHashes> now = hash_inputs(params, parts_.threads);
      check_inputs(layer, params, lane, now);
      input_hashes_ = now;
    }
    unchanged_.after(params, input_hashes_);
    if (params.op() == parts_.graph->sum.made_by) {
      sums_.part(layer, params.get<as_linear_params>());
    }
  }
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || !params.has_rows(tap)) continue;
    const CacheSpec& spec = spec_of(layer, params, tap);
    if (weights_) check_rows_left_alone(layer, params, tap, spec, lane);
    record_rows(params, tap, spec);
  }
  return judge(layer, params, lane);
}

void Verifier::read_nan_codes(int layer, const OpParams& params, const std::string& lane,
                              std::string note) {
  const auto& p = params.get<as_sparse_attention_params>();
  TapResult result = blank(layer, params, "o.nan", p.o, lane);
  result.elements = 1;
  result.tolerance = "exact";
  result.introduced = ErrorFigures{0, 0, 0, 1, 1};
  result.verdict = Verdict::kWrong;
  result.budget_used = std::numeric_limits<double>::infinity();
  result.note = std::move(note);
  results_.push_back(std::move(result));
}

void Verifier::before_rank_op(int rank, int layer, const OpParams& params,
                              const std::string& lane) {
  if (!weights_) return;
  bad_rows_ = false;
  if (references_ != References::kNone) huge_inputs_ = huge_rows(params, parts_.threads);
  check_rows(layer, params, lane, rank);
}

Result<void> Verifier::rank_op(int rank, int layer, const OpParams& params,
                               const std::string& lane) {
  const as_op_info& info = params.info();
  const auto has_own = [&](const as_tap_info& tap) {
    return params.has_cache(tap) && spec_of(layer, params, tap, rank).peer == rank;
  };
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || !has_own(tap)) continue;
    const CacheSpec& spec = spec_of(layer, params, tap, rank);
    if (weights_) check_rows_left_alone(layer, params, tap, spec, lane);
    record_rows(params, tap, spec);
    share_rows(params, tap, spec, {});
  }
  if (references_ == References::kNone) return {};
  const std::unique_ptr<Judging> j = judging_of(layer, params, lane, rank);
  gather_written(*j);
  const auto compared = judge_forced(*j);
  if (!j->forced) return j->forced;
  const std::size_t first = results_.size();
  results_.insert(results_.end(), j->results.begin(), j->results.end());
  if (j->swapped) {
    swapped_ = std::move(*j->swapped);
    swapped_result_ = first + j->swapped_result;
  }
  spare_.push_back(std::move(j->memory));
  if (!compared) return compared.error();
  const auto right = [](const TapResult& r) { return r.verdict != Verdict::kWrong; };
  const auto begin = results_.begin() + static_cast<std::ptrdiff_t>(first);
  results_.erase(std::remove_if(begin, results_.end(), right), results_.end());
  for (std::size_t i = first; i < results_.size(); ++i) {
    results_[i].tap += fmt::format("{}{}", kRankTap, rank);
    results_[i].note = fmt::format("rank {}: {}", rank, results_[i].note);
  }
  return {};
}

Result<void> Verifier::part_of_op(int layer, const OpParams& part, const std::string& lane,
                                  const std::string& name) {
  if (references_ == References::kNone) return {};
  if (auto ok = settle(); !ok) return ok;  // who lags has the same memory
  const std::unique_ptr<Judging> j = judging_of(layer, part, lane);
  gather_written(*j);
  const auto compared = judge_forced(*j);
  spare_.push_back(std::move(j->memory));
  if (!j->forced || !compared) return j->forced ? compared : j->forced;
  for (TapResult& result : j->results) {
    if (result.verdict != Verdict::kWrong) continue;
    result.tap += "." + name;
    result.note = fmt::format("over the rows that are {}: {}", name, result.note);
    results_.push_back(std::move(result));
  }
  return {};
}

Result<void> Verifier::unseen(int layer, const OpParams& params, const std::string& lane,
                              std::vector<TapResult>& results) const {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT) continue;
    const bool is_cache = tap.kind == AS_TAP_CACHE;
    as_tensor shape = is_cache ? params.cache(tap.offset).data : params.tensor(tap.offset);
    if (!present(shape)) continue;
    if (is_cache) {
      const as_cache& cache = params.cache(tap.offset);
      shape.shape[0] = params.tensor(tap.mask_offset).shape[0];
      shape.shape[1] = as_cache_row_bytes(&cache);
    }
    TapResult result = blank(layer, params, tap.name, shape, lane);
    auto rule = parts_.tolerances.find(params.op(), tap.name, lane, tolerance_class(params, tap));
    if (!rule) return rule.error();
    result.tolerance = rule->name;
    results.push_back(std::move(result));
  }
  return {};
}

void Verifier::unseen_again(const std::vector<TapResult>& results, const StepMetadata& step) {
  results_.reserve(results_.size() + results.size());
  for (const TapResult& like : results) {
    TapResult& result = results_.emplace_back(like);
    result.step = step_number_;
    // Axes that grow with the requests.
    if (as_op_role(result.op) == AS_ROLE_SCORE) result.shape.back() = step.logits_width();
    const Node* node = parts_.graph->before.find(result.op);
    const Binding* bound = node != nullptr ? node->find(result.tap) : nullptr;
    const StepTensor* list = bound != nullptr ? step.tensor(bound->name) : nullptr;
    if (list != nullptr && list->columns == kGrows) result.shape.back() = step.list_columns;
  }
}

void Verifier::change_hands(as_op_id op, int layer, const std::string& from,
                            const std::string& to) {
  inputs_changed();
  for (TapResult& r : results_) {
    if (r.op == op && r.layer == layer && r.lane == from) r.lane = to;
  }
}

void Verifier::check_inputs(int layer, const OpParams& params, const std::string& lane,
                            const std::vector<RowHashes>& now) {
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] == input_hashes_[i]) continue;
    const as_tap_info& tap = params.info().taps[i];
    const std::string name = std::string(tap.name) + ".input";
    TapResult result = blank(layer, params, name.c_str(), params.tensor(tap.offset), lane);
    result.tolerance = "bytes";
    result.verdict = Verdict::kWrong;
    result.budget_used = std::numeric_limits<double>::infinity();
    result.note = fmt::format("the lane wrote to its input {}", tap.name);
    results_.push_back(std::move(result));
  }
}

void Verifier::check_between(int layer, const OpParams& params, const as_tap_info& tap,
                             const CacheSpec& spec, const std::string& lane) {
  const as_cache& cache = params.cache(tap.offset);
  const RowCheck check =
      check_rows_kept(params, *RowAccess::find(params.op(), tap.offset), spec, shadow_, space_,
                      *step_, KeptWhen::kBefore, bad_slots_[&spec], parts_.threads);
  if (check.bad == 0) return;
  results_.push_back(
      rows_result(layer, params, tap_of(tap, spec) + kBetweenTap, cache, check, lane));
}

void Verifier::check_rows_left_alone(int layer, const OpParams& params, const as_tap_info& tap,
                                     const CacheSpec& spec, const std::string& lane) {
  const as_cache& cache = params.cache(tap.offset);
  const RowCheck check =
      check_rows_kept(params, *RowAccess::find(params.op(), tap.offset), spec, shadow_, space_,
                      *step_, KeptWhen::kAfter, bad_slots_[&spec], parts_.threads);
  if (check.bad == 0) return;  // one tap a writer would say nothing in a sound run
  results_.push_back(rows_result(layer, params, tap_of(tap, spec) + ".kept", cache, check, lane));
}

void Verifier::record_rows(const OpParams& params, const as_tap_info& tap, const CacheSpec& spec) {
  const as_cache_access& access = *RowAccess::find(params.op(), tap.offset);
  if (access.copies != 0) {
    RowAccess::for_each(params.data(), access, [&](const RowVisit& v) {
      const std::int64_t from = *at<std::int64_t>(params.tensor(access.copies), v.token);
      if (from < 0 || !shadow_.has(spec, from) || !shadow_.has(spec, v.slot)) return;
      bad_slots_[&spec].erase(v.slot);
      shadow_.copied(spec, from, v.slot);
    });
    return;
  }
  const std::vector<std::int64_t>& rows = logical_.rows_of(row_ratio(spec));
  RowAccess::for_each(params.data(), access, [&](const RowVisit& v) {
    const std::int64_t row = rows[static_cast<std::size_t>(v.token)];
    if (!shadow_.has(spec, v.slot) || row < 0) return;
    bad_slots_[&spec].erase(v.slot);
    shadow_.record(spec, params.cache(tap.offset), v.slot, row, step_number_);
  });
}

void Verifier::share_rows(const OpParams& params, const as_tap_info& tap, const CacheSpec& spec,
                          const std::vector<History*>& histories) {
  if (prefix_reuse_.empty()) return;
  prefix_reuse_.apply(spec, params.cache(tap.offset), true, shadow_, histories);
}

void gather_last(const ModelGraph& graph, Frame& frame, const StepMetadata& step, bool drafts) {
  const as_tensor hidden = frame.get(drafts ? graph.draft_out : graph.hidden);
  const auto rows = static_cast<std::int64_t>(step.sample_rows.size());
  const std::int64_t columns = hidden.shape[1];
  as_tensor last = frame.make(drafts ? graph.draft_last : graph.last, AS_BF16, {rows, columns});
  const auto bytes = static_cast<std::size_t>(columns * as_dtype_size(hidden.dtype));
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto from = static_cast<std::size_t>(step.sample_rows[static_cast<std::size_t>(i)]);
    std::memcpy(static_cast<char*>(last.data) + static_cast<std::size_t>(i) * bytes,
                static_cast<const char*>(hidden.data) + from * bytes, bytes);
  }
}

}  // namespace attnscope
