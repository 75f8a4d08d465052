#include "engine/opcase/import_guess.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/family/family.h"
#include "engine/family/models.h"
#include "engine/io/json_object.h"
#include "engine/opcase/import_case.h"
#include "engine/opcase/import_names.h"
#include "engine/tensorfile/float_value.h"
#include "engine/trace/axis_words.h"
#include "kernels/layout/records.h"
#include "kernels/params/numeric_rules.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

using nlohmann::json;

constexpr std::size_t kMostCandidates = 6;  // of a tap
constexpr int kMostAssignments = 4096;      // of an op in a layer, with the ones that do not fit

// A tensor of the dump as a tap could read it.
struct GuessCandidate {
  const TensorEntry* entry = nullptr;
  std::string name;  // with "{layer}"
  NameMatch match;
  std::optional<ImportTensor> tensor;
  std::optional<ImportCache> cache;
  std::vector<std::int64_t> shape;  // as the tap has it; of a tensor
  std::string view;                 // in words; empty = as it lies
};

struct GuessTap {
  const as_tap_info* tap;
  std::vector<GuessCandidate> candidates;
};

// Letters that stand for one number in all taps of an op.
bool is_shared(std::string_view letter) {
  for (const std::string_view one :
       {"T", "H", "D", "J", "hidden", "in", "out", "q_lora", "groups", "d", "V", "width", "qkv"}) {
    if (letter == one) return true;
  }
  return false;
}

bool holds(ElementType type, std::string_view dtypes) {
  if (dtypes.find("bf16") != std::string_view::npos ||
      dtypes.find("f32") != std::string_view::npos) {
    if (is_float(type)) return true;
  }
  const bool integer = type == ElementType::kI32 || type == ElementType::kI64;
  if (dtypes.find("i32") != std::string_view::npos ||
      dtypes.find("i64") != std::string_view::npos) {
    return integer;
  }
  return dtypes.find("u8") != std::string_view::npos && element_bits(type) == 8;
}

class MapGuesser {
 public:
  MapGuesser(const std::vector<TensorFile>& files, const GuessOptions& options)
      : files_(files), options_(options) {
    if (options.model != nullptr) graph_ = model_graph(*options.model);
    for (const TensorFile& file : files) {
      for (const TensorEntry& e : file.tensors()) {
        const auto of_layer = name_without_layer(e.name);
        const int layer = of_layer ? of_layer->second : -1;
        tensors_.push_back({&e, of_layer ? of_layer->first : e.name, layer});
        if (layer >= 0) layers_.insert(layer);
      }
    }
  }

  Result<MapGuess> run() {
    json ops = json::object();
    // Ops that a name speaks for take their results first: many products have one form.
    find_ops(true, ops);
    find_ops(false, ops);
    if (ops.empty()) {
      std::vector<std::string> why;
      why.reserve(missing_.size() + 1);
      for (const auto& [place, line] : missing_) why.push_back(line);
      if (callable_.first > 0) {
        why.push_back(
            fmt::format("tensors fit {}, but no choice that was tried gives the outputs; "
                        "names that say the op, such as attn.q, make it fewer",
                        callable_.second));
      }
      return bad_input(fmt::format("no op was found in the dump{}{}", why.empty() ? "" : ": ",
                                   fmt::join(why, "; ")),
                       options_.model == nullptr
                           ? "name the model with --model, or copy a map from assets/maps"
                           : "copy a map from assets/maps and write the names of the dump into it");
    }
    json map = {{"format", "attnscope-import-map"},
                {"version", 1},
                {"engine", options_.engine},
                {"ops", ops}};
    out_.map = map.dump(2) + "\n";
    for (const auto& [layer, line] : missing_) out_.open.push_back(line);
    std::vector<std::string> unused;
    for (const Tensor& t : tensors_) {
      if (!used_.contains(t.name) && std::ranges::count(unused, shown_name(t.name)) == 0) {
        unused.push_back(shown_name(t.name));
      }
    }
    if (!unused.empty()) {
      out_.open.push_back(fmt::format("of no op: {}", fmt::join(unused, ", ")));
    }
    return std::move(out_);
  }

 private:
  struct Tensor {
    const TensorEntry* entry;
    std::string name;  // with "{layer}"
    int layer;         // -1 = of none
  };

  void find_ops(bool named, json& ops) {
    for (int i = 0; const as_op_info* info = as_op_at(i); ++i) {
      const CaseOp op = *find_case_op(info->id);
      if (ops.contains(op.name)) continue;
      if (info->phase == AS_PHASE_AFTER || layers_.empty()) {
        if (auto found = in_layer(op, -1, "", named)) ops[op.name] = to_json(*found, "");
        continue;
      }
      json entries = json::array();
      for (const auto& [type, layer] : examples()) {
        if (!layer_has(*info, layer)) continue;
        if (auto found = in_layer(op, layer, type, named)) entries.push_back(to_json(*found, type));
      }
      // Where all types have the same entry it is one.
      for (json& entry : entries) {
        json bare = entry, first = entries[0];
        bare.erase("layers");
        first.erase("layers");
        if (bare != first) continue;
        if (&entry != &entries[0]) entries[0]["layers"].push_back(entry["layers"][0]);
      }
      for (std::size_t k = entries.size(); k-- > 1;) {
        json bare = entries[k], first = entries[0];
        bare.erase("layers");
        first.erase("layers");
        if (bare == first) entries.erase(k);
      }
      if (entries.size() == 1 && entries[0].contains("layers") &&
          (entries[0]["layers"].size() == examples().size() || options_.model == nullptr)) {
        entries[0].erase("layers");
      }
      if (!entries.empty()) ops[op.name] = entries.size() == 1 ? entries[0] : entries;
    }
  }

  // Whether the model's layer has the op; helper ops, of no layer, stand for parts of ops.
  bool layer_has(const as_op_info& info, int published) const {
    if (!graph_ || info.layers == 0) return true;
    const auto& all = options_.model->layers;
    const auto at = std::ranges::find(all, published);
    if (at == all.end()) return false;
    return graph_->layer(static_cast<int>(at - all.begin())).find(info.id) != nullptr ||
           graph_->before.find(info.id) != nullptr;
  }

  // A layer of each type that the dump has; without a model the first.
  std::vector<std::pair<std::string, int>> examples() const {
    std::vector<std::pair<std::string, int>> out;
    for (const int layer : layers_) {
      std::string type;
      if (options_.model != nullptr) {
        const auto& all = options_.model->layers;
        const auto at = std::ranges::find(all, layer);
        if (at == all.end()) continue;
        type = layer_type_name(*options_.model, static_cast<int>(at - all.begin()));
      }
      const bool known = std::ranges::any_of(out, [&](const auto& e) { return e.first == type; });
      if (!known) out.emplace_back(type, layer);
    }
    return out;
  }

  std::optional<std::int64_t> size_in_model(std::string_view letter) const {
    if (options_.model == nullptr) return std::nullopt;
    const ModelConfig& m = *options_.model;
    if (letter == "H") return m.heads;
    if (letter == "D") return m.head_dim;
    if (letter == "J") return m.index_heads;
    if (letter == "d") return m.index_dim;
    if (letter == "groups") return m.o_groups;
    return std::nullopt;
  }

  // Ways to see a tensor with as many axes as the tap has.
  void add_views(const as_tap_info& tap, const GuessCandidate& plain,
                 std::vector<GuessCandidate>& out) const {
    const auto wanted = split_axes(tap.axes);
    std::vector<std::int64_t> own = plain.entry->shape;
    while (own.size() > 1 && own.front() == 1 && own.size() > wanted.size()) own.erase(own.begin());
    const auto add = [&](ImportTensor t, std::vector<std::int64_t> shape, std::string view) {
      GuessCandidate c = plain;
      t.name = plain.name;
      c.tensor = std::move(t);
      c.shape = std::move(shape);
      c.view = std::move(view);
      out.push_back(std::move(c));
    };
    ImportTensor t;
    if (own.size() == wanted.size()) {
      if (own.size() != plain.entry->shape.size()) t.axes = std::ssize(wanted);
      add(t, own, t.axes > 0 ? "without its first axis" : "");
      const auto heads = wanted.size() == 3 ? size_in_model(wanted[1]) : std::nullopt;
      if (heads && own[0] == *heads && wanted[0] == "T") {
        t = {};
        t.shape = {own[0], -1, own[2]};
        t.permute = {1, 0, 2};
        add(t, {own[1], own[0], own[2]}, "heads first");
      }
      return;
    }
    if (own.size() + 1 == wanted.size() && wanted.size() == 3) {
      // Two axes lie in one: of tokens the last, of weights the first.
      const bool first = wanted[0] != "T";
      const auto known = size_in_model(wanted[first ? 0 : 1]);
      const std::int64_t joined = first ? own[0] : own[1];
      if (!known || *known <= 0 || joined % *known != 0) return;
      t.shape = first ? std::vector<std::int64_t>{*known, joined / *known, own[1]}
                      : std::vector<std::int64_t>{-1, *known, joined / *known};
      std::vector<std::int64_t> shape = t.shape;
      if (!first) shape[0] = own[0];
      add(t, shape, "two axes in one");
    }
  }

  void add_caches(const GuessCandidate& plain, std::vector<GuessCandidate>& out) const {
    const TensorEntry& e = *plain.entry;
    if (element_bits(e.type) != 8) return;
    if (e.shape.size() < 3) return add_pages(plain, out);
    for (std::int32_t i = 0; const as_row_format* format = as_row_format_at(i); ++i) {
      const auto width = static_cast<std::int32_t>(as_row_width(format->record));
      if (format->placement != AS_PLANAR || width == 0) continue;
      const std::int64_t row =
          as_payload_bytes(format->record, width) + as_scale_bytes(format->record);
      if (e.shape.back() != row) continue;
      for (const bool interleaved : {false, true}) {
        GuessCandidate c = plain;
        c.cache = ImportCache{};
        c.cache->name = plain.name;
        c.cache->record = format->record;
        c.cache->width = width;
        c.cache->interleaved = interleaved;
        c.cache->rows_per_block = static_cast<std::int32_t>(e.shape[e.shape.size() - 2]);
        c.view = fmt::format("{} rows, {}", format->name, interleaved ? "interleaved" : "planar");
        out.push_back(std::move(c));
      }
    }
  }

  // Pages as bytes: one behind the other, or an axis of them. Their rows are as many as fill one.
  static void add_pages(const GuessCandidate& plain, std::vector<GuessCandidate>& out) {
    const TensorEntry& e = *plain.entry;
    if (e.shape.empty() || e.bytes == 0) return;
    for (std::int32_t i = 0; const as_row_format* format = as_row_format_at(i); ++i) {
      const auto width = static_cast<std::int32_t>(as_row_width(format->record));
      if (format->placement != AS_PLANAR || width == 0) continue;
      // Of pages of 256 tokens: entries of 4 and of 128 of them, then other sizes.
      for (const std::int32_t rows : {64, 2, 128, 256, 32, 16, 8, 4}) {
        const as_row_layout layout = as_row_layout_of(format->record, width, 1, rows);
        for (const std::int64_t stride : std::set{layout.page_used, layout.page}) {
          const bool fits = e.shape.size() == 2 ? e.shape[1] == stride
                                                : static_cast<std::int64_t>(e.bytes) % stride == 0;
          if (!fits) continue;
          GuessCandidate c = plain;
          c.cache = ImportCache{};
          c.cache->name = plain.name;
          c.cache->record = format->record;
          c.cache->width = width;
          c.cache->rows_per_block = rows;
          c.cache->page_stride = stride;
          c.view = fmt::format("{} rows, {} a page of {} bytes", format->name, rows, stride);
          out.push_back(std::move(c));
        }
      }
    }
  }

  // Two tensors that continue each other along the last axis, where what they both are called
  // speaks for the tap: q_nope and q_pe.
  void add_pieces(const CaseOp& op, const as_tap_info& tap, int layer,
                  std::vector<GuessCandidate>& out) const {
    const std::size_t axes = split_axes(tap.axes).size();
    const auto can_be = [&](const Tensor& t) {
      return (t.layer < 0 || t.layer == layer) && t.entry->shape.size() == axes && axes > 1 &&
             t.entry->elements > 0 && holds(t.entry->type, tap.dtype);
    };
    for (const Tensor& first : tensors_) {
      if (!can_be(first)) continue;
      const std::string stem = stem_of(first.name);
      const NameMatch match = match_name(stem, op.name, tap.name);
      if (match.tap == 0) continue;
      for (const Tensor& second : tensors_) {
        if (&second == &first || !can_be(second) || stem_of(second.name) != stem) continue;
        const std::vector<std::int64_t>&a = first.entry->shape, &b = second.entry->shape;
        if (first.entry->type != second.entry->type ||
            !std::equal(a.begin(), a.end() - 1, b.begin())) {
          continue;
        }
        GuessCandidate c{first.entry, first.name, match, ImportTensor{}, {}, a, ""};
        c.tensor->concat = {first.name, second.name};
        c.tensor->axis = -1;
        c.shape.back() += b.back();
        c.view = "followed by " + shown_name(second.name);
        out.push_back(std::move(c));
      }
    }
  }

  static std::string stem_of(const std::string& name) {
    const std::size_t end = name.find_last_of("_.");
    return end == std::string::npos ? std::string() : name.substr(0, end);
  }

  static const as_tap_info* first_output(const CaseOp& op) {
    const auto found = std::ranges::find_if(
        op.taps, [](const as_tap_info& tap) { return tap.direction == AS_TAP_OUT; });
    return found == op.taps.end() ? nullptr : &*found;
  }

  GuessTap candidates(const CaseOp& op, const as_tap_info& tap, int layer) const {
    GuessTap out{&tap, {}};
    for (const Tensor& t : tensors_) {
      if (t.layer >= 0 && t.layer != layer) continue;
      GuessCandidate plain{t.entry, t.name, match_name(t.name, op.name, tap.name), {}, {}, {}, ""};
      if (tap.kind == AS_TAP_CACHE) {
        add_caches(plain, out.candidates);
      } else if (holds(t.entry->type, tap.dtype) && t.entry->elements > 0) {
        add_views(tap, plain, out.candidates);
      }
    }
    if (tap.kind == AS_TAP_TENSOR) add_pieces(op, tap, layer, out.candidates);
    // Inner results are many and of all shapes: those alone that their names speak for. So are
    // inputs that an op may do without, but a name that says the tap is enough.
    if (!needed(tap) && &tap != first_output(op)) {
      const bool input = tap.direction == AS_TAP_IN;
      std::erase_if(out.candidates, [&](const GuessCandidate& c) {
        return input ? c.match.tap == 0 : c.match.score() < 6;
      });
    }
    std::ranges::stable_sort(out.candidates, [](const auto& a, const auto& b) {
      return std::pair(a.match.score(), a.match.length()) >
             std::pair(b.match.score(), b.match.length());
    });
    return out;
  }

  std::vector<std::map<std::string, ImportRope>> ropes(const CaseOp& op) const {
    std::vector<ImportRope> kinds;
    if (const ModelConfig* m = options_.model) {
      ImportRope plain;
      plain.base = m->rope_theta;
      ImportRope yarn;
      yarn.base = m->compress_rope_theta;
      yarn.factor = m->yarn_factor;
      yarn.original_max_pos = m->yarn_original_max;
      yarn.beta_fast = m->yarn_beta_fast;
      yarn.beta_slow = m->yarn_beta_slow;
      for (ImportRope& kind : std::vector{plain, yarn}) {
        for (const Tensor& t : tensors_) {
          if (t.layer >= 0 || t.entry->shape.size() != 2 || t.entry->shape[1] != AS_ROPE_DIM ||
              !is_float(t.entry->type)) {
            continue;
          }
          kind.table = t.name;
          kinds.push_back(kind);
        }
        kind.table.clear();
        kinds.push_back(kind);
      }
    }
    std::vector<std::map<std::string, ImportRope>> out;
    bool has = false;
    for (const as_param_info& field : op.fields) {
      if (field.kind != AS_PARAM_ROPE) continue;
      has = true;
      for (const ImportRope& kind : kinds) out.push_back({{field.name, kind}});
    }
    if (!has) out.emplace_back();
    return out;
  }

  std::map<std::string, double> numbers(const CaseOp& op, std::int64_t head_dim) const {
    std::map<std::string, double> out;
    for (const as_param_info& field : op.fields) {
      if (field.kind != AS_PARAM_REAL) continue;
      const std::string_view name = field.name;
      if (name == "eps") out[field.name] = options_.model ? options_.model->rms_eps : 1e-6;
      if (name == "scale") {
        out[field.name] = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, head_dim)));
      }
    }
    return out;
  }

  struct Found {
    ImportOp op;
    std::vector<const GuessCandidate*> chosen;  // by tap; null = without
    int score = 0;
  };

  // All that fits, better names first; `accept` says whether to go on.
  template <class Accept>
  bool search(const std::vector<GuessTap>& taps, std::size_t at,
              std::map<std::string, std::int64_t>& sizes,
              std::vector<const GuessCandidate*>& chosen, const Accept& accept) {
    if (at == taps.size()) return accept(chosen, sizes);
    const as_tap_info& tap = *taps[at].tap;
    std::size_t tried = 0;
    for (const GuessCandidate& c : taps[at].candidates) {
      const bool taken = std::ranges::any_of(chosen, [&](const GuessCandidate* other) {
        return other != nullptr && other->entry == c.entry;
      });
      if (taken) continue;
      auto own = sizes;
      bool fits = true;
      const auto names = split_axes(tap.axes);
      for (std::size_t a = 0; c.tensor && a < names.size(); ++a) {
        if (!is_shared(names[a])) continue;
        fits = fits && own.try_emplace(names[a], c.shape[a]).first->second == c.shape[a];
      }
      if (!fits) continue;
      cut_ = cut_ || tried >= kMostCandidates || assignments_ >= kMostAssignments;
      if (++tried > kMostCandidates || ++assignments_ > kMostAssignments) break;
      chosen.push_back(&c);
      const bool go_on = search(taps, at + 1, own, chosen, accept);
      chosen.pop_back();
      if (!go_on) return false;
    }
    if (!needed(tap)) {
      chosen.push_back(nullptr);
      const bool go_on = search(taps, at + 1, sizes, chosen, accept);
      chosen.pop_back();
      return go_on;
    }
    return true;
  }

  static bool needed(const as_tap_info& tap) {
    const std::string_view name = tap.name;
    if (tap.optional != 0 || name.starts_with("extra_") || name.ends_with("_scale")) return false;
    return tap.direction == AS_TAP_IN || tap.kind == AS_TAP_CACHE;
  }

  std::optional<Found> in_layer(const CaseOp& op, int layer, const std::string& type,
                                bool named_output) {
    std::vector<GuessTap> taps;
    bool has_output = false;
    std::vector<std::string> lacking;
    for (const as_tap_info& tap : op.taps) {
      // What a struct got later and plans are not guessed: the op is whole without them.
      if (tap.offset >= as_op_find(op.id)->first_size) continue;
      taps.push_back(candidates(op, tap, layer));
      if (taps.back().candidates.empty() && needed(tap)) lacking.emplace_back(tap.name);
      has_output |= tap.direction == AS_TAP_OUT && !taps.back().candidates.empty();
    }
    const bool named = std::ranges::any_of(taps, [](const GuessTap& t) {
      return !t.candidates.empty() && t.candidates.front().match.op > 0;
    });
    const std::string place = layer < 0 ? op.name : fmt::format("{} of layer {}", op.name, layer);
    if (!lacking.empty() || !has_output) {
      if (named && !lacking.empty()) {
        missing_[place] = fmt::format("{}: nothing fits {}", place, fmt::join(lacking, ", "));
      }
      return std::nullopt;
    }
    std::optional<Found> right, by_name;
    int runs = 0;
    cut_ = false;
    const auto ropes_of = ropes(op);
    // Eager attention rounds its logits to bf16; tensor cores keep few bits of products of e4m3.
    const bool eager = op.id == AS_OP_WORKSPACE_ATTENTION, codes = op.id == AS_OP_INDEXER_LOGITS;
    bool loose = false;
    const auto accept = [&](const auto& all, const auto& known) {
      const auto head_dim = known.contains("D") ? known.at("D") : 0;
      for (const auto& rope : ropes_of) {
        Found found;
        found.op.op = op;
        found.op.ropes = rope;
        found.op.numbers = numbers(op, head_dim);
        if (loose && codes) found.op.numbers["score_rule"] = AS_SCORES_E4M3;
        found.chosen = all;
        bool output = false;  // is there to judge
        for (std::size_t i = 0; i < all.size(); ++i) {
          if (all[i] == nullptr) continue;
          const as_tap_info& tap = *taps[i].tap;
          if (all[i]->cache) found.op.caches[tap.name] = *all[i]->cache;
          if (all[i]->tensor) {
            ImportTensor& t = found.op.tensors[tap.name] = *all[i]->tensor;
            if (loose && eager && std::string_view(tap.rule) == "attention") {
              t.tolerance = "attention_bf16_logits";
            }
          }
          found.score += all[i]->match.score();
          if (tap.direction == AS_TAP_OUT) {
            if ((all[i]->match.op > 0) != named_output) return true;
            if (!named_output && used_.contains(all[i]->name)) return true;
          }
          output |= tap.direction == AS_TAP_OUT && (tap.kind == AS_TAP_CACHE || all[i]->tensor);
        }
        if (!output) continue;
        if (runs >= options_.most_runs) return false;
        const auto made = import_case(found.op, files_, options_.engine, std::max(0, layer));
        if (!made) continue;
        ++runs;
        const auto verdict = options_.right(made->kept);
        if (!verdict) continue;
        if (*verdict) {
          right = std::move(found);
          return false;
        }
        if (all_of_op(found) && (!by_name || found.score > by_name->score))
          by_name = std::move(found);
      }
      return true;
    };
    // No choice of tensors may be right by a wider bound before all were tried by the usual one.
    for (const bool wide : {false, true}) {
      if (right || (wide && !eager && !codes)) break;
      loose = wide;
      assignments_ = 0;
      if (wide) runs = 0;
      std::map<std::string, std::int64_t> sizes;
      std::vector<const GuessCandidate*> chosen;
      search(taps, 0, sizes, chosen, accept);
    }
    // An integer or two are right by chance.
    std::optional<Found>& best = right ? right : by_name;
    const bool strong = best && (best->score >= 4 || (right && has_many_values(*right, taps)));
    if (!best || !strong) {
      const bool cut = cut_ || runs >= options_.most_runs;
      if (named && right) {
        missing_[place] =
            fmt::format("{}: right by a few integers alone, perhaps by chance", place);
      } else if (named && cut) {
        missing_[place] = fmt::format(
            "{}: none of the {} calls that were tried is right, and there are more choices", place,
            runs);
      } else if (named) {
        missing_[place] = fmt::format("{}: no choice of tensors makes it right", place);
      } else if (runs > 0 && !right) {
        const auto taps_by_name = std::ranges::count_if(taps, [](const GuessTap& t) {
          return !t.candidates.empty() && t.candidates.front().match.tap > 0;
        });
        if (taps_by_name > callable_.first) callable_ = {taps_by_name, op.name};
      }
      return std::nullopt;
    }
    explain(place, type, *best, taps, right.has_value(), runs);
    return std::move(best);
  }

  static bool all_of_op(const Found& found) {
    return std::ranges::all_of(found.chosen, [](const GuessCandidate* c) {
      return c == nullptr || (c->match.score() == 6);
    });
  }

  static bool has_many_values(const Found& found, const std::vector<GuessTap>& taps) {
    for (std::size_t i = 0; i < taps.size(); ++i) {
      const GuessCandidate* c = found.chosen[i];
      if (c != nullptr && taps[i].tap->direction == AS_TAP_OUT && is_float(c->entry->type) &&
          c->entry->elements >= 64) {
        return true;
      }
    }
    return false;
  }

  void explain(const std::string& place, const std::string& type, const Found& found,
               const std::vector<GuessTap>& taps, bool right, int runs) {
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < taps.size(); ++i) {
      const GuessCandidate* c = found.chosen[i];
      if (c == nullptr) continue;
      used_.insert(c->name);
      if (c->tensor) used_.insert(c->tensor->concat.begin(), c->tensor->concat.end());
      const char* by = c->match.score() == 6 ? "by op and tap"
                       : c->match.op > 0     ? "by op"
                       : c->match.tap > 0    ? "by tap"
                                             : "by shape";
      parts.push_back(fmt::format("{} = {} ({}{}{})", taps[i].tap->name, shown_name(c->name), by,
                                  c->view.empty() ? "" : ", ", c->view));
    }
    for (const auto& [tap, t] : found.op.tensors) {
      if (!t.tolerance.empty())
        parts.push_back(fmt::format("{} held to class {}", tap, t.tolerance));
    }
    if (found.op.numbers.contains("score_rule")) {
      parts.emplace_back("score_rule 2, sums of products of e4m3");
    }
    for (const auto& [field, rope] : found.op.ropes) {
      if (!rope.table.empty()) used_.insert(rope.table);
      parts.push_back(fmt::format("{} of base {:g}{}", field, rope.base,
                                  rope.table.empty() ? "" : " from " + shown_name(rope.table)));
    }
    out_.reasons.push_back(fmt::format(
        "{}{}: {}; {}", place, type.empty() ? "" : " (" + type + ")", fmt::join(parts, ", "),
        right ? fmt::format("the reference is right with it, choice {} that was run", runs)
              : "by names alone: the reference gets other values, the op is wrong or a name is"));
  }

  static json to_json(const Found& found, const std::string& type) {
    json entry = json::object();
    if (!type.empty()) entry["layers"] = {type};
    json& tensors = entry["tensors"] = json::object();
    for (const auto& [tap, t] : found.op.tensors) {
      json& j = tensors[tap] = json::object();
      if (t.concat.empty()) {
        j["name"] = t.name;
      } else {
        j["concat"] = t.concat;
        j["axis"] = t.axis;
      }
      if (!t.shape.empty()) j["shape"] = t.shape;
      if (t.axes > 0) j["axes"] = t.axes;
      if (!t.permute.empty()) j["permute"] = t.permute;
      if (!t.tolerance.empty()) j["class"] = t.tolerance;
    }
    for (const auto& [tap, c] : found.op.caches) {
      entry["caches"][tap] = {{"name", c.name},
                              {"record", as_row_format_of(c.record)->name},
                              {"rows", c.interleaved ? "interleaved" : "planar"},
                              {"rows_per_block", c.rows_per_block}};
      if (c.page_stride > 0) entry["caches"][tap]["page_stride"] = c.page_stride;
    }
    for (const auto& [field, r] : found.op.ropes) {
      json& j = entry["ropes"][field] = {{"base", r.base},
                                         {"factor", r.factor},
                                         {"original_max_pos", r.original_max_pos},
                                         {"beta_fast", r.beta_fast},
                                         {"beta_slow", r.beta_slow}};
      if (!r.table.empty()) j["table"] = r.table;
    }
    if (!found.op.numbers.empty()) entry["numbers"] = found.op.numbers;
    return entry;
  }

  const std::vector<TensorFile>& files_;
  const GuessOptions& options_;
  std::shared_ptr<const ModelGraph> graph_;  // of the model, where one is named
  std::vector<Tensor> tensors_;
  std::set<int> layers_;
  std::set<std::string> used_;
  std::map<std::string, std::string> missing_;  // by place
  // Of the ops whose inputs fit and whose outputs never do, the one with the most taps by name.
  std::pair<std::ptrdiff_t, std::string> callable_;
  int assignments_ = 0;
  bool cut_ = false;  // of the op's choices some were not tried
  MapGuess out_;
};

}  // namespace

Result<MapGuess> guess_map(const std::vector<TensorFile>& files, const GuessOptions& options) {
  return MapGuesser(files, options).run();
}

}  // namespace attnscope
