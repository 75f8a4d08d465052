#include "engine/opcase/import_capture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include "engine/capture/capture_index.h"
#include "engine/capture/trace_io.h"
#include "engine/family/family.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/opcase/case_trace.h"
#include "engine/opcase/import_case.h"
#include "engine/opcase/import_requests.h"
#include "engine/opcase/import_tables.h"
#include "engine/opcase/import_use.h"
#include "engine/opcase/import_verdicts.h"
#include "engine/opcase/import_wires.h"
#include "engine/session/step/attention_copy.h"
#include "engine/session/tap_copies.h"
#include "engine/session/verify/evidence.h"
#include "engine/session/verify/forced_copy.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostPosition = std::int64_t{1} << 24;  // beyond any model
constexpr std::int32_t kMostRequests = 1 << 16;

struct ImportedStep {
  std::vector<PlacedCase> ops;
  std::int64_t tokens = -1;
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> token_to_req;
  std::vector<std::int32_t> ids;  // of the tokens; empty = not dumped
  std::int64_t requests = 1;
  std::int64_t head_rows = -1;  // of the ops after the layers; -1 = none was dumped
  std::vector<std::int64_t> sample_rows;
};

bool is_head(const Place& place) { return as_op_find(place.op)->phase == AS_PHASE_AFTER; }

const as_tap_info* axis_tap(const OpCase& kept, const char* axis) {
  for (const as_tap_info& tap : kept.op.taps) {
    const bool first = std::string_view(tap.axes) == axis ||
                       std::string_view(tap.axes).starts_with(std::string(axis) + ",");
    if (tap.kind == AS_TAP_TENSOR && first && kept.tensors.contains(tap.name)) return &tap;
  }
  return nullptr;
}

template <class T>
std::vector<T> list_of(const StoredTensor& stored) {
  std::vector<T> out(stored.bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), stored.bytes.data(), out.size() * sizeof(T));
  return out;
}

class DumpImporter {
 public:
  DumpImporter(const ImportMap& map, const std::vector<std::vector<TensorFile>>& dump,
               const ImportCaptureOptions& options)
      : map_(map), dump_(dump), options_(options) {}

  Result<ImportedCapture> run(const std::string& path) {
    steps_.resize(dump_.size());
    for (std::size_t s = 0; s < dump_.size(); ++s) {
      use_.add(dump_[s]);
      if (auto ok = read_step(s); !ok) return ok.error();
    }
    if (const std::string note = by_position_.note(); !note.empty()) out_.notes.push_back(note);
    for (std::string& text : use_.sentences(map_)) out_.notes.push_back(std::move(text));
    if (out_.ops == 0) {
      return bad_input("the dump has the inputs of no op of the map, in no layer of the model",
                       fmt::format("layers of the model: {}; --layer N --op NAME without a capture "
                                   "says what is missing",
                                   fmt::join(options_.model.layers, ", ")));
    }
    name_requests();
    auto info = describe(path);
    if (!info) return info.error();
    CaptureOptions capture;
    capture.level = CaptureLevel::kFull;
    capture.weights = true;
    auto writer =
        CaptureWriter::create(path, capture, **info, {options_.program, map_.engine + " dump", {}});
    if (!writer) return writer.error();
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      if (options_.judge) {
        auto found = contradictions(*graph_, static_cast<std::int64_t>(s), steps_[s].ops);
        std::ranges::move(found, std::back_inserter(out_.contradictions));
      }
      const StepTrace trace = trace_of(s, **info);
      for (const auto& op : trace.ops) {
        out_.results.insert(out_.results.end(), op->results.begin(), op->results.end());
      }
      if (auto ok = (*writer)->add(summary_of(trace, **info), &trace, nullptr); !ok) {
        return ok.error();
      }
    }
    auto totals = (*writer)->finish();
    if (!totals) return totals.error();
    out_.totals = *totals;
    return std::move(out_);
  }

 private:
  Result<void> read_step(std::size_t s) {
    ImportedStep& step = steps_[s];
    const auto at = static_cast<std::int64_t>(s);
    const auto add = [&](const ImportOp& op, int index, int layer) -> Result<void> {
      const bool taken = has_inputs(op, dump_[s], layer);
      use_.looked_for(op, layer, taken);
      if (!taken) return {};
      auto made = import_case(op, dump_[s], map_.engine, layer);
      if (!made) return in_place({at, layer, static_cast<as_op_id>(op.op.id)}, made.error());
      const Place place = {at, layer, static_cast<as_op_id>(op.op.id)};
      if (auto ok = fits(step, place, made->kept); !ok) return in_place(place, ok.error());
      for (const std::string& note : made->notes) {
        const std::string text = fmt::format("{}: {}", op.op.name, note);
        if (std::ranges::count(out_.notes, text) == 0) out_.notes.push_back(text);
      }
      step.ops.push_back({place, index, std::make_shared<const OpCase>(std::move(made->kept))});
      ++out_.ops;
      return {};
    };
    const auto phase = [&](as_phase wanted) -> Result<void> {
      for (const ImportOp* op : ops_of_layer(map_, std::nullopt)) {
        if (op->op.helper || as_op_find(op->op.id)->phase != wanted) continue;
        if (auto ok = add(*op, -1, -1); !ok) return ok;
      }
      return {};
    };
    if (auto ok = phase(AS_PHASE_BEFORE); !ok) return ok;
    for (int i = 0; i < options_.model.num_layers(); ++i) {
      for (const ImportOp* op : ops_of_layer(map_, layer_type_name(options_.model, i))) {
        const int layer = options_.model.layers[to_size(i)];
        if (op->op.helper) {
          leave_out(*op, s, layer);
        } else if (has_op(i, op->op.id)) {
          if (auto ok = add(*op, i, layer); !ok) return ok;
        }
      }
    }
    if (auto ok = phase(AS_PHASE_AFTER); !ok) return ok;
    if (step.tokens < 0 && !out_.left_out.empty()) {
      return bad_input(fmt::format("step {}: of the ops that a capture has, its files have the "
                                   "inputs of none with tokens; of {} they have",
                                   at, out_.left_out.back().name),
                       "import it as a case: --layer N --op NAME -o NAME.json");
    }
    if (step.tokens < 0) {
      return bad_input(fmt::format("step {}: its files have the inputs of no op with tokens", at),
                       "every step of a dump names the same tensors");
    }
    if (auto ok = place_tokens(step, s); !ok) return ok;
    if (auto ok = place_samples(step, s); !ok) return ok;
    return name_tokens(step, s);
  }

  // It has no place in a step, so no tap of a capture could be its; what it got wrong is said.
  void leave_out(const ImportOp& op, std::size_t s, int layer) {
    const bool taken = has_inputs(op, dump_[s], layer);
    use_.looked_for(op, layer, taken);
    if (!taken) return;
    LeftOutOp& left = out_.left_out.emplace_back();
    left.step = static_cast<std::int64_t>(s);
    left.layer = layer;
    left.name = op.op.name;
    const auto made = import_case(op, dump_[s], map_.engine, layer);
    if (!made) {
      left.why_not = made.error().message;
    } else if (options_.judge) {
      auto run = options_.judge(made->kept);
      if (run) {
        left.run = std::move(*run);
      } else {
        left.why_not = run.error().message;
      }
    }
  }

  bool has_op(int layer, std::int32_t op) const {
    return graph_->layer(layer).find(static_cast<as_op_id>(op)) != nullptr;
  }

  static Error in_place(const Place& place, const Error& error) {
    return {error.code,
            fmt::format("step {}, layer {}: {}", place.step, place.layer, error.message),
            error.hint};
  }

  // One step has one number of tokens, and the model's own numbers of heads.
  Result<void> fits(ImportedStep& step, const Place& place, const OpCase& kept) const {
    const bool head = is_head(place);
    const as_tap_info* tap = axis_tap(kept, place.op == AS_OP_SAMPLE ? "N" : "T");
    if (tap != nullptr) {
      const std::int64_t rows = kept.tensors.at(tap->name).shape[0];
      std::int64_t& known = head ? step.head_rows : step.tokens;
      if (known < 0) known = rows;
      if (rows != known) {
        return bad_input(fmt::format("{}: {} has {} {}, the ops before have {}", kept.op.name,
                                     tap->name, rows, head ? "rows" : "tokens", known),
                         "a dump holds the same tokens for every op of a step");
      }
    }
    const ModelConfig& m = options_.model;
    const std::map<std::string_view, std::int64_t> sizes = {
        {"H", m.heads}, {"W", m.window}, {"J", m.index_heads}};
    for (const as_tap_info& t : kept.op.taps) {
      const auto stored = kept.tensors.find(t.name);
      if (stored == kept.tensors.end()) continue;
      std::string_view axes = t.axes;
      for (const std::int64_t n : stored->second.shape) {
        const std::string_view letter = axes.substr(0, axes.find(','));
        axes.remove_prefix(std::min(axes.size(), letter.size() + 1));
        const auto it = sizes.find(letter);
        if (it == sizes.end() || it->second == n) continue;
        return bad_input(fmt::format("{}: {} has {} along {}, the model {} has {}", kept.op.name,
                                     t.name, n, letter, m.name, it->second),
                         "name the model that was dumped: --model; of a list that is padded cut "
                         "the rest off in the map: \"slice\"");
      }
    }
    return {};
  }

  // Positions and requests of the tokens, of the first op that has them.
  Result<void> place_tokens(ImportedStep& step, std::size_t s) {
    const auto at = static_cast<std::int64_t>(s);
    for (const PlacedCase& op : step.ops) {
      const auto take = [&](const char* name, auto& list) {
        const auto it = op.kept->tensors.find(name);
        if (list.empty() && it != op.kept->tensors.end()) {
          list = list_of<typename std::decay_t<decltype(list)>::value_type>(it->second);
        }
      };
      take("positions", step.positions);
      take("token_to_req", step.token_to_req);
    }
    const bool has_positions = !step.positions.empty();
    for (std::size_t t = 0; t < step.positions.size(); ++t) {
      if (step.positions[t] >= 0 && step.positions[t] < kMostPosition) continue;
      return bad_input(fmt::format("step {}: token {} has position {}", at, t, step.positions[t]),
                       "leave padding out with \"shape\"");
    }
    if (auto ok = place_requests(step, s); !ok) return ok;
    std::map<std::int32_t, std::int64_t> next;
    step.positions.resize(to_size(step.tokens), -1);
    for (std::size_t t = 0; t < step.positions.size(); ++t) {
      const std::int32_t request = step.token_to_req[t];
      if (request < 0 || request >= kMostRequests ||
          (t > 0 && request < step.token_to_req[t - 1])) {
        return bad_input(
            fmt::format("step {}: token {} is of request {}; tokens of a request lie together, "
                        "requests ascend from 0",
                        at, t, request),
            "leave padding out with \"shape\"");
      }
      if (!has_positions) step.positions[t] = next[request]++;
      step.requests = std::max<std::int64_t>(step.requests, request + 1);
    }
    return {};
  }

  // Whose tokens they are: as ops have it, the map names it, or positions show it.
  Result<void> place_requests(ImportedStep& step, std::size_t s) {
    if (map_.token_to_req) use_.looked_for(*map_.token_to_req, "token_to_req");
    if (step.token_to_req.empty() && map_.token_to_req &&
        has_tensor(*map_.token_to_req, dump_[s])) {
      auto named = import_integers(*map_.token_to_req, "token_to_req", dump_[s]);
      if (!named) return named.error();
      if (std::ssize(*named) < step.tokens) {
        return bad_input(fmt::format("step {}: token_to_req has {} numbers, there are {} tokens", s,
                                     named->size(), step.tokens),
                         "\"token_to_req\" in the map names a tensor with one number a token");
      }
      for (std::int64_t t = 0; t < step.tokens; ++t) {
        step.token_to_req.push_back(
            static_cast<std::int32_t>(std::clamp<std::int64_t>((*named)[to_size(t)], -1, 1 << 16)));
      }
    }
    if (!step.token_to_req.empty()) {
      const bool whole = std::ranges::all_of(
          step.token_to_req, [](std::int32_t r) { return r >= 0 && r < kMostRequests; });
      if (whole && step.positions.size() == step.token_to_req.size()) {
        by_position_.know(step.positions, step.token_to_req);
      }
      return {};
    }
    if (step.positions.empty()) {
      step.token_to_req.assign(to_size(step.tokens), 0);
      return {};
    }
    std::vector<std::int64_t> slots;
    std::int64_t rows_per_block = 0;
    for (const PlacedCase& op : step.ops) {
      if (op.place.op != AS_OP_Q_ROPE_KV_INSERT) continue;
      slots = list_of<std::int64_t>(op.kept->tensors.at("slots"));
      rows_per_block = op.kept->caches.at("cache").rows_per_block;
      break;
    }
    auto told =
        by_position_.assign(static_cast<std::int64_t>(s), step.positions, slots, rows_per_block);
    if (!told) return told.error();
    step.token_to_req = std::move(*told);
    return {};
  }

  // Which rows the ops after the layers got.
  Result<void> place_samples(ImportedStep& step, std::size_t s) {
    if (map_.sample_rows) use_.looked_for(*map_.sample_rows, "sample_rows");
    if (step.head_rows < 0) return {};
    std::vector<std::int64_t>& rows = step.sample_rows;
    if (map_.sample_rows && has_tensor(*map_.sample_rows, dump_[s])) {
      auto named = import_integers(*map_.sample_rows, "sample_rows", dump_[s]);
      if (!named) return named.error();
      rows = std::move(*named);
    } else if (step.head_rows == step.tokens) {
      for (std::int64_t t = 0; t < step.tokens; ++t) rows.push_back(t);
    } else {
      for (std::int32_t r = 0; r < step.requests; ++r) {
        const auto [from, to] = span(step, r);
        if (to > from) rows.push_back(to - 1);
      }
    }
    const bool inside =
        std::ranges::all_of(rows, [&](std::int64_t t) { return t >= 0 && t < step.tokens; });
    if (inside && static_cast<std::int64_t>(rows.size()) == step.head_rows) return {};
    return bad_input(
        fmt::format("step {}: the ops after the layers have {} rows, neither one of each request "
                    "nor one of each token",
                    s, step.head_rows),
        "say which tokens they are of: \"sample_rows\" in the map names a tensor of row numbers");
  }

  Result<void> name_tokens(ImportedStep& step, std::size_t s) {
    if (map_.token_ids) use_.looked_for(*map_.token_ids, "token_ids");
    if (!map_.token_ids || !has_tensor(*map_.token_ids, dump_[s])) return {};
    auto ids = import_integers(*map_.token_ids, "token_ids", dump_[s]);
    if (!ids) return ids.error();
    // An engine's own buffer may be padded.
    if (static_cast<std::int64_t>(ids->size()) < step.tokens) {
      return bad_input(
          fmt::format("step {}: {} token ids of {} tokens", s, ids->size(), step.tokens),
          "\"token_ids\" in the map names a tensor with one id a token");
    }
    ids->resize(to_size(step.tokens));
    for (const std::int64_t id : *ids) {
      if (id < 0 || id >= kMostTokens) {
        return bad_input(fmt::format("step {}: {} is no token id", s, id));
      }
      step.ids.push_back(static_cast<std::int32_t>(id));
    }
    return {};
  }

  void name_requests() {
    std::int64_t count = 0;
    for (const ImportedStep& step : steps_) count = std::max(count, step.requests);
    requests_ = options_.requests;
    for (std::size_t r = requests_.size(); r < to_size(count); ++r) {
      requests_.push_back({fmt::format("request {}", r), -1});
    }
    seen_.assign(requests_.size(), 0);
    known_.resize(requests_.size());
    for (std::size_t r = 0; r < requests_.size(); ++r) {
      if (requests_[r].prompt_tokens >= 0) continue;
      std::int64_t first = -1, end = -1;
      for (const ImportedStep& step : steps_) {
        const auto [from, to] = span(step, static_cast<std::int32_t>(r));
        if (to - from > 1) end = step.positions[to_size(to - 1)] + 1;
        if (to > from && first < 0) first = step.positions[to_size(from)];
      }
      requests_[r].prompt_tokens = end >= 0 ? end : std::max<std::int64_t>(0, first);
    }
  }

  // Rows [from, to) of a request.
  static std::pair<std::int64_t, std::int64_t> span(const ImportedStep& step,
                                                    std::int32_t request) {
    const auto range = std::ranges::equal_range(step.token_to_req, request);
    return {range.begin() - step.token_to_req.begin(), range.end() - step.token_to_req.begin()};
  }

  Result<std::shared_ptr<const SessionInfo>> describe(const std::string& path) const {
    CaptureIndex index;
    index.model = options_.model;
    index.block_stride = build_cache_layout(options_.model).block_stride;
    index.num_blocks = 1;
    for (const ImportedStep& step : steps_) {
      index.token_budget = std::max(index.token_budget, step.tokens);
      for (const PlacedCase& op : step.ops) {
        for (const auto& [name, cache] : op.kept->caches) {
          index.num_blocks = std::max(index.num_blocks, cache.blocks);
        }
      }
    }
    index.max_requests = static_cast<std::int64_t>(requests_.size());
    index.references = options_.judge ? References::kSim : References::kNone;
    index.lanes = map_.engine;
    index.lane_of.assign(AS_OP_COUNT, map_.engine);
    for (const ImportedRequest& request : requests_) {
      index.request_names.push_back(request.name);
      index.prompt_tokens.push_back(request.prompt_tokens);
    }
    return info_of(index, path);
  }

  StepMetadata metadata_of(const ImportedStep& step, const SessionInfo& info) const {
    StepMetadata m;
    const std::size_t rows = to_size(step.requests), tokens = to_size(step.tokens);
    const std::size_t groups = info.layout.groups.size();
    m.positions = step.positions;
    m.token_to_req = step.token_to_req;
    m.tokens = step.ids;
    m.tokens.resize(tokens, 0);
    m.sample_rows = step.sample_rows;
    for (const std::int64_t t : step.sample_rows) {
      m.sample_request.push_back(step.token_to_req[to_size(t)]);
    }
    m.query_start_loc.push_back(0);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto [from, to] = span(step, static_cast<std::int32_t>(r));
      const auto before = to > from ? static_cast<std::int32_t>(step.positions[to_size(from)]) : 0;
      const auto after =
          to > from ? static_cast<std::int32_t>(step.positions[to_size(to - 1)]) + 1 : 0;
      m.live.push_back(static_cast<std::int32_t>(r));
      m.num_tokens.push_back(after);
      m.num_before.push_back(before);
      m.num_computed.push_back(before);
      m.num_scheduled_tokens.push_back(static_cast<std::int32_t>(to - from));
      m.seq_lens.push_back(after);
      m.query_start_loc.push_back(m.query_start_loc.back() + m.num_scheduled_tokens.back());
    }
    m.running.assign(rows, 1);
    m.joins.assign(rows, 0);
    m.matching.assign(rows, 0);
    m.lost_to.assign(rows, -1);
    for (const CacheGroup& group : info.layout.groups) {
      m.groups.push_back(group.block_tokens);
      m.groups.push_back(group.reach());
    }
    for (auto* counts : {&m.counts_before, &m.counts}) counts->assign(groups * rows, 0);
    m.slots.assign(groups * tokens, -1);
    m.own = family_of(info.config).step_tensors(info.config, info.layout);
    for (StepTensor& tensor : m.own) {
      if (tensor.always) tensor.assign(step.tokens, 0);
    }
    return m;
  }

  // What a lane leaves as it was is NaN in a trace.
  static void blank(const OpCase& kept, OpTrace& trace) {
    for (const as_tap_info& tap : kept.op.taps) {
      if (tap.mask == AS_MASK_ALL || tap.kind != AS_TAP_TENSOR) continue;
      const auto copy = std::ranges::find(trace.taps, tap.name, &TapCopy::name);
      const auto mask = std::ranges::find_if(
          kept.op.taps, [&](const as_tap_info& other) { return other.offset == tap.mask_offset; });
      if (copy == trace.taps.end() || mask == kept.op.taps.end()) continue;
      const auto limits = kept.tensors.find(mask->name);
      if (limits == kept.tensors.end()) continue;
      const as_tensor given = stored_view(limits->second);
      for (const as_tensor* t : {&copy->value, &copy->reference}) {
        if (present(*t)) blank_rows(tap, given, *t);
      }
    }
  }
  static void blank_rows(const as_tap_info& tap, const as_tensor& given, const as_tensor& tensor) {
    const std::int64_t row = tensor.stride[0] * as_dtype_size(tensor.dtype);
    auto* bytes = static_cast<std::uint8_t*>(tensor.data);
    for (std::int64_t t = 0; t < tensor.shape[0]; ++t) {
      const std::int64_t valid = bytes_with_values(tap, given, t, tensor);
      std::memset(bytes + t * row + valid, 0xff, to_size(row - valid));
    }
  }

  // The weights, where the LSE that they are checked by was dumped.
  static std::shared_ptr<const AttentionCopy> attention_of(const OpCase& kept,
                                                           std::int64_t tokens) {
    if (kept.unknown.contains("lse") || !kept.tensors.contains("lse")) return nullptr;
    auto call = CaseCall::make(kept);
    if (!call) return nullptr;
    auto& params = *static_cast<as_sparse_attention_params*>(call->params());
    const StoredTensor& lse = kept.tensors.at("lse");
    if (lse.stride.empty()) std::memcpy(params.lse.data, lse.bytes.data(), lse.bytes.size());
    std::vector<std::int32_t> rows(to_size(tokens));
    for (std::size_t t = 0; t < rows.size(); ++t) rows[t] = static_cast<std::int32_t>(t);
    return std::make_shared<const AttentionCopy>(copy_attention(params, rows, nullptr));
  }

  // Where the worst element of a wrong output lies, and what is there.
  static void name_places(const PlacedCase& op, const StepMetadata& step, CaseRun& run) {
    auto call = CaseCall::make(*op.kept);
    if (!call) return;
    const OpParams params = OpParams::of(op.place.op, call->params());
    for (CaseTap& tap : run.taps) {
      const auto info = std::ranges::find_if(
          op.kept->op.taps, [&](const as_tap_info& t) { return tap.tap == t.name; });
      if (tap.verdict != Verdict::kWrong || info == op.kept->op.taps.end()) continue;
      as_tensor value{};
      value.rank = static_cast<std::int32_t>(tap.shape.size());
      std::ranges::copy(tap.shape, value.shape);
      tap.note = evidence(tap.comparison, params, *info, value, &step);
    }
  }

  // The reference's values and what they say of the op.
  void judge(const PlacedCase& op, const StepMetadata& step, OpTrace& trace) {
    if (!options_.judge) return;
    auto run = options_.judge(*op.kept);
    if (run) {
      name_places(op, step, *run);
      return take_verdicts(*run, trace);
    }
    const std::string text =
        fmt::format("{}: not judged: {}", op.kept->op.name, run.error().message);
    if (std::ranges::count(out_.notes, text) == 0) out_.notes.push_back(text);
  }

  std::shared_ptr<const OpTrace> op_trace(const PlacedCase& op, const StepMetadata& step,
                                          const SessionInfo& info) {
    auto trace = std::make_shared<OpTrace>(trace_of_case(*op.kept, map_.engine));
    trace->place = op.place;
    std::erase_if(trace->taps, [&](const TapCopy& t) { return op.kept->unknown.contains(t.name); });
    for (TapCopy& tap : trace->taps) {
      if (is_head(op.place) && tap.axes.starts_with('T')) tap.axes.front() = 'N';
      tap.owner = op.kept;
      if (is_weight(tap)) continue;  // kept once
      const std::size_t bytes =
          to_size(as_tensor_numel(&tap.value) * as_dtype_size(tap.value.dtype));
      const auto* from = static_cast<const std::uint8_t*>(tap.value.data);
      tap.value_bytes.assign(from, from + bytes);
      tap.value.data = tap.value_bytes.data();
    }
    judge(op, step, *trace);
    blank(*op.kept, *trace);
    for (RowsCopy& rows : trace->rows) {
      for (const as_tap_info& tap : op.kept->op.taps) {
        if (rows.name != tap.name) continue;
        const CacheSpec* spec = info.layout.of_tap(op.index, op.place.op, tap.offset);
        rows.group = spec != nullptr ? spec->group : -1;
      }
    }
    if (op.place.op == AS_OP_SPARSE_ATTENTION) {
      trace->attention = attention_of(*op.kept, step.num_tokens_in_step());
    }
    return trace;
  }

  // By request: the token of its last sampled row.
  static std::vector<std::int32_t> sampled_of(const ImportedStep& step) {
    for (const PlacedCase& op : step.ops) {
      if (op.place.op != AS_OP_SAMPLE || op.kept->unknown.contains("tokens")) continue;
      const auto ids = list_of<std::int32_t>(op.kept->tensors.at("tokens"));
      std::vector<std::int32_t> out(to_size(step.requests), -1);
      for (std::size_t i = 0; i < ids.size() && i < step.sample_rows.size(); ++i) {
        if (ids[i] >= 0 && ids[i] < kMostTokens) {
          out[to_size(step.token_to_req[to_size(step.sample_rows[i])])] = ids[i];
        }
      }
      return out;
    }
    return {};
  }

  StepTrace trace_of(std::size_t s, const SessionInfo& info) {
    const ImportedStep& step = steps_[s];
    StepTrace trace;
    trace.step = static_cast<std::int64_t>(s);
    trace.complete = true;
    trace.metadata = metadata_of(step, info);
    for (std::int32_t t = 0; t < step.tokens; ++t) trace.kept.push_back(t);
    trace.owners.resize(to_size(info.num_blocks));
    for (std::size_t t = 0; t < step.ids.size(); ++t) {
      auto& known = known_[to_size(step.token_to_req[t])];
      const std::size_t at = to_size(step.positions[t]);
      if (known.size() <= at) known.resize(at + 1, 0);
      known[at] = step.ids[t];
    }
    for (std::size_t r = 0; r < requests_.size(); ++r) {
      const auto row = r < trace.metadata.seq_lens.size() ? trace.metadata.seq_lens[r] : 0;
      seen_[r] = std::max<std::int64_t>(seen_[r], row);
      Request request;
      request.id = static_cast<std::int32_t>(r);
      request.name = requests_[r].name;
      request.prompt_tokens = requests_[r].prompt_tokens;
      request.tokens = known_[r];
      request.tokens.resize(to_size(std::max(seen_[r], request.prompt_tokens)), 0);
      request.computed = seen_[r];
      trace.requests.push_back(
          {request, std::vector<std::vector<std::int32_t>>(info.layout.groups.size())});
    }
    fill_tables(step.ops, info, trace);
    trace.sampled = sampled_of(step);
    for (const PlacedCase& op : step.ops) {
      trace.ops.push_back(op_trace(op, trace.metadata, info));
    }
    return trace;
  }

  static StepSummary summary_of(const StepTrace& trace, const SessionInfo& info) {
    StepSummary summary;
    summary.step = trace.step;
    summary.tokens = trace.metadata.num_tokens_in_step();
    summary.decode_only = std::ranges::all_of(trace.metadata.num_scheduled_tokens,
                                              [](std::int32_t n) { return n <= 1; });
    summary.complete = true;
    summary.layers.resize(info.config.layers.size() + 1);
    for (std::size_t i = 0; i < info.config.layers.size(); ++i) {
      summary.layers[i + 1].layer = info.config.layers[i];
    }
    for (const auto& op : trace.ops) count_verdicts(*op, summary);
    return summary;
  }

  const ImportMap& map_;
  const std::vector<std::vector<TensorFile>>& dump_;
  const ImportCaptureOptions& options_;
  const std::shared_ptr<const ModelGraph> graph_ = model_graph(options_.model);
  std::vector<ImportedStep> steps_;
  std::vector<ImportedRequest> requests_;
  std::vector<std::int64_t> seen_;                // tokens of each request so far
  std::vector<std::vector<std::int32_t>> known_;  // their ids
  RequestsByPosition by_position_;
  ImportUse use_;
  ImportedCapture out_;
};

}  // namespace

std::vector<std::vector<TensorFile>> steps_of_dump(std::vector<TensorFile> files) {
  std::vector<std::vector<TensorFile>> steps;
  std::set<std::string> names;
  for (TensorFile& file : files) {
    const bool again = std::ranges::any_of(
        file.tensors(), [&](const TensorEntry& t) { return names.contains(t.name); });
    if (steps.empty() || again) {
      steps.emplace_back();
      names.clear();
    }
    for (const TensorEntry& t : file.tensors()) names.insert(t.name);
    steps.back().push_back(std::move(file));
  }
  return steps;
}

Result<ImportedCapture> import_capture(const ImportMap& map,
                                       const std::vector<std::vector<TensorFile>>& steps,
                                       const ImportCaptureOptions& options,
                                       const std::string& path) {
  return DumpImporter(map, steps, options).run(path);
}

}  // namespace attnscope
