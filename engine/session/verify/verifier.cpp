#include "engine/session/verify/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "engine/checkpoint/hidden_states.h"
#include "engine/session/step/listed_attention.h"
#include "engine/session/step/op_change.h"
#include "engine/session/step/output_poison.h"
#include "engine/session/step/tensor_parallel_sum.h"
#include "engine/session/verify/evidence.h"
#include "engine/session/verify/kept_rows.h"
#include "engine/session/verify/recorded_rows.h"
#include "engine/session/verify/row_checks.h"
#include "engine/trace/recheck.h"
#include "kernels/cpu/codec.h"
#include "kernels/params/op_table.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Whether this call puts out codes: of some ops not all do.
bool is_quantiser(const OpParams& params) {
  const as_op_info& info = params.info();
  return (info.traits & AS_QUANTISES) != 0 &&
         std::any_of(info.taps, info.taps + info.num_taps, [&](const as_tap_info& tap) {
           return tap.follows_row != 0 &&
                  (tap.kind == AS_TAP_CACHE || present(params.tensor(tap.offset)));
         });
}

Result<void> call(const Lane* lane, const OpParams& params, const as_call& how) {
  auto ran = call_op(lane->ops[params.op()], params.data(), how);
  if (ran) return ran;
  return Error{ran.error().code,
               fmt::format("{}: {}: {}", lane->name, params.info().name, ran.error().message),
               {}};
}

// Numbers that a quantiser puts out with the scale of its codes in them.
bool carries_scale(const as_tap_info& tap, const as_tensor& value) {
  return tap.follows_row != 0 && tap.kind == AS_TAP_TENSOR && is_float(value.dtype);
}

TapMask mask_of(const OpParams& params, const as_tap_info& tap) {
  TapMask mask;
  if (tap.mask == AS_MASK_SLOTS) mask.slots = at<std::int64_t>(params.tensor(tap.mask_offset));
  if (tap.mask == AS_MASK_LENS) mask.lens = at<std::int32_t>(params.tensor(tap.mask_offset));
  return mask;
}

// Records of one cache tap as values [T, width].
as_tensor decode(const as_tensor& rows, const as_cache& cache, const std::int64_t* slots,
                 Scratch& scratch) {
  as_tensor out = scratch.make(AS_F32, {rows.shape[0], cache.width});
  const std::int64_t payload = as_cache_layout(&cache).payload;
  for (std::int64_t t = 0; t < rows.shape[0]; ++t) {
    if (slots[t] < 0) continue;
    const auto* row = at<std::uint8_t>(rows, t);
    cpu::decode_row(cache.record, cache.width, row, row + payload, at<float>(out, t));
  }
  return out;
}

// Rows that were told to go to one slot: whichever was written last is there, and that is no fault
// of the writer's.
void leave_out_shared_slots(const as_tensor& slots, std::vector<bool>& left_out) {
  std::unordered_map<std::int64_t, std::int64_t> token_of;
  for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
    const std::int64_t slot = *at<std::int64_t>(slots, t);
    if (slot < 0) continue;
    const auto [other, first] = token_of.try_emplace(slot, t);
    if (first) continue;
    left_out.resize(static_cast<std::size_t>(slots.shape[0]));
    left_out[static_cast<std::size_t>(t)] = true;
    left_out[static_cast<std::size_t>(other->second)] = true;
  }
}

// Of rows of a cache, by the name of their tap: "k_cache", or "k_cache.rank1" of a peer's.
std::string tap_of(const as_tap_info& tap, const CacheSpec& spec) {
  return spec.peer < 0 ? std::string(tap.name)
                       : fmt::format("{}{}{}", tap.name, kRankTap, spec.peer);
}

void poison_outputs(const OpParams& params, bool second) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_TENSOR) continue;
    const as_tensor& t = params.tensor(tap.offset);
    if (!present(t)) continue;
    std::memset(t.data, poison_byte(tap, t.dtype, second),
                static_cast<std::size_t>(as_tensor_numel(&t) * as_dtype_size(t.dtype)));
  }
}

}  // namespace

struct Verifier::FreeRun {
  FreeRun(const Lane* reference, const SessionParts& parts, const AddressSpace& space, bool exact)
      : lane(reference),
        frame(exact ? Frame::Kind::kExact : Frame::Kind::kSim),
        tensor_parallel(parts, frame.kind()),
        history(parts.layout, space, exact) {}

  const Lane* lane;
  Frame frame;
  TensorParallelSum tensor_parallel;
  History history;
  OpParams last;     // of the op just run
  bool ran = false;  // this op
};

Verifier::Verifier(const SessionParts& parts, References references, const AddressSpace& space,
                   std::int64_t num_blocks, std::int64_t first_block)
    : parts_(parts),
      references_(references),
      space_(space),
      shadow_(parts.layout, space, num_blocks, first_block),
      prefix_reuse_(space_),
      forced_(std::make_unique<ForcedCopy>(parts.layout, shadow_)),
      forced_exact_(std::make_unique<ForcedCopy>(parts.layout, shadow_)),
      unchanged_(parts.threads),
      sums_(parts) {
  if (references_ != References::kNone) {
    weights_.emplace(parts);
    free_sim_ = std::make_unique<FreeRun>(parts.sim, parts, space, false);
  }
  if (references_ == References::kBoth) {
    free_exact_ = std::make_unique<FreeRun>(parts.exact, parts, space, true);
  }
}

void Verifier::watch_weights_anew() {
  if (weights_) weights_.emplace(parts_);
}

void Verifier::watch_memory() {
  if (!weights_) weights_.emplace(parts_);
}

Verifier::~Verifier() = default;

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
  in_step_ = false;
  pending_.clear();
  bad_slots_.clear();
}

void Verifier::given(int layer, TapResult result) {
  result.step = step_number_;
  result.layer = layer < 0 ? -1 : parts_.config.layers[static_cast<std::size_t>(layer)];
  results_.push_back(std::move(result));
}

void Verifier::check_given(int layer, const OpParams& params) {
  for (TapResult& r : weights_->before(layer, params)) given(layer, std::move(r));
  if (references_ == References::kNone) return;
  for (TapResult& r : unchanged_.before(params, input_hashes_, *step_)) given(layer, std::move(r));
  if (params.op() == AS_OP_ATTN_NORM && layer == 0) {
    const as_tensor& h = params.get<as_rms_norm_params>().x;
    auto r = h.device == 0 ? check_embedded(h, *step_, *parts_.weights) : std::nullopt;
    if (r) given(-1, std::move(*r));
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

void Verifier::begin_tokens(const StepMetadata& step, const Serving& serving) {
  step_ = &step;
  if (weights_) {
    if (auto r = weights_->before_embedding(step.tokens)) given(-1, std::move(*r));
  }
  if (references_ != References::kNone) {
    for (TapResult& r : check_tokens(step, serving)) given(-1, std::move(r));
  }
  logical_ = logical_metadata(step, space_, parts_.layout);
  parts_.graph->family->logical_lists(step, parts_.config, logical_);
  for (FreeRun* run : {free_sim_.get(), free_exact_.get()}) {
    if (run == nullptr) continue;
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

std::vector<History*> Verifier::free_histories() const {
  return {free_sim_ ? &free_sim_->history : nullptr, free_exact_ ? &free_exact_->history : nullptr};
}

const History* Verifier::free_history(bool exact) const {
  const auto& run = exact ? free_exact_ : free_sim_;
  return run ? &run->history : nullptr;
}

const OpParams* Verifier::free_params(bool exact) const {
  const auto& run = exact ? free_exact_ : free_sim_;
  return run && run->ran ? &run->last : nullptr;
}

void Verifier::rank_part(int layer, const as_linear_params& wo_b) {
  if (references_ != References::kNone) sums_.part(layer, wo_b);
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

Result<void> Verifier::before(int layer, const OpParams& params, const std::string& lane) {
  if (!weights_) return {};
  bad_rows_ = false;
  if (references_ != References::kNone) {
    input_hashes_ = hash_inputs(params, parts_.threads);
    huge_inputs_ = huge_rows(params, parts_.threads);
    poison_outputs(params, (step_number_ + layer) % 2 != 0);
  }
  if (step_ == nullptr) return {};
  check_given(layer, params);
  check_rows(layer, params, lane, -1);
  return {};
}

void Verifier::check_rows(int layer, const OpParams& params, const std::string& lane, int peer) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind != AS_TAP_CACHE) continue;
    const as_cache& cache = params.cache(tap.offset);
    if (tap.direction == AS_TAP_IN && cache.record == AS_RECORD_NONE) continue;
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
    const std::vector<RowHashes> now = hash_inputs(params, parts_.threads);
    check_inputs(layer, params, lane, now);
    unchanged_.after(params, now);
    if (params.op() == parts_.graph->sum.made_by) {
      sums_.part(layer, params.get<as_linear_params>());
    }
  }
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_CACHE) continue;
    const CacheSpec& spec = spec_of(layer, params, tap);
    if (weights_) check_rows_left_alone(layer, params, tap, spec, lane);
    record_rows(params, tap, spec);
  }
  if (references_ != References::kNone) {
    if (auto ok = run_forced(layer, params); !ok) return ok;
    for (FreeRun* run : {free_sim_.get(), free_exact_.get()}) {
      if (run == nullptr) continue;
      if (auto ok = run_free(layer, params.op(), *run); !ok) return ok;
    }
  }
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_CACHE) continue;
    share_rows(params, tap, spec_of(layer, params, tap), free_histories());
  }
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT) continue;
    if (tap.kind == AS_TAP_TENSOR && !present(params.tensor(tap.offset))) continue;
    if (auto ok = compare_tap(layer, params, i, lane); !ok) return ok;
  }
  if (ListedAttention::of(params.op())) weigh_swaps(params);
  return {};
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
    return tap.kind == AS_TAP_CACHE && spec_of(layer, params, tap, rank).peer == rank;
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
  if (auto ok = run_forced(layer, params, rank); !ok) return ok;
  const std::size_t first = results_.size();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT) continue;
    if (tap.kind == AS_TAP_TENSOR ? !present(params.tensor(tap.offset)) : !has_own(tap)) continue;
    if (auto ok = compare_tap(layer, params, i, lane, Whose::kOtherRank); !ok) return ok;
  }
  const auto right = [](const TapResult& r) { return r.verdict != Verdict::kWrong; };
  const auto begin = results_.begin() + static_cast<std::ptrdiff_t>(first);
  results_.erase(std::remove_if(begin, results_.end(), right), results_.end());
  for (std::size_t i = first; i < results_.size(); ++i) {
    results_[i].tap += fmt::format("{}{}", kRankTap, rank);
    results_[i].note = fmt::format("rank {}: {}", rank, results_[i].note);
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
                      *step_, KeptWhen::kBefore, bad_slots_[&spec]);
  if (check.bad == 0) return;
  results_.push_back(
      rows_result(layer, params, tap_of(tap, spec) + kBetweenTap, cache, check, lane));
}

void Verifier::check_rows_left_alone(int layer, const OpParams& params, const as_tap_info& tap,
                                     const CacheSpec& spec, const std::string& lane) {
  const as_cache& cache = params.cache(tap.offset);
  const RowCheck check =
      check_rows_kept(params, *RowAccess::find(params.op(), tap.offset), spec, shadow_, space_,
                      *step_, KeptWhen::kAfter, bad_slots_[&spec]);
  if (check.bad == 0) return;  // one tap a writer would say nothing in a sound run
  results_.push_back(rows_result(layer, params, tap_of(tap, spec) + ".kept", cache, check, lane));
}

void Verifier::record_rows(const OpParams& params, const as_tap_info& tap, const CacheSpec& spec) {
  const std::vector<std::int64_t>& rows = logical_.rows_of(row_ratio(spec));
  RowAccess::for_each(params.data(), *RowAccess::find(params.op(), tap.offset),
                      [&](const RowVisit& v) {
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

Result<void> Verifier::run_forced(int layer, const OpParams& params, int peer) {
  requantised_ = false;
  if (auto ok = call(parts_.sim, forced_->make(params, layer, logical_, false, bad_rows_, peer),
                     reference_call());
      !ok) {
    return ok;
  }
  if (!is_quantiser(params)) return {};
  OpParams again;
  if (forced_->requantise(params, &again)) {
    requantised_ = true;
    requantised_params_ = again;
    if (auto ok = call(parts_.sim, again, reference_call()); !ok) return ok;
  }
  if (references_ != References::kBoth) return {};
  return call(parts_.exact, forced_exact_->make(params, layer, logical_, true, bad_rows_, peer),
              reference_call());
}

OpContext Verifier::free_context() const {
  OpContext context;
  context.graph = parts_.graph.get();
  context.config = &parts_.config;
  context.weights = parts_.weights.get();
  context.ropes = &parts_.ropes;
  context.positions = make_tensor(step_->positions.data(), {step_->num_tokens_in_step()});
  context.token_to_req = make_tensor(step_->token_to_req.data(), {step_->num_tokens_in_step()});
  context.seq_lens = make_tensor(step_->seq_lens.data(), {step_->num_live()});
  context.query_start_loc = make_tensor(step_->query_start_loc.data(), {step_->num_live() + 1});
  context.logits_width = step_->logits_width();
  return context;
}

OpParams Verifier::free_inputs(int layer, as_op_id op) const {
  const LogicalSource source(parts_.layout, free_sim_->history, logical_, step_->list_columns);
  return layer_op_params(op, layer, free_context(), free_sim_->frame, source);
}

Result<void> Verifier::run_free(int layer, as_op_id op, FreeRun& run) {
  run.ran = as_op_find(op)->phase != AS_PHASE_BEFORE && op != AS_OP_SAMPLE;
  if (!run.ran) return {};
  const LogicalSource source(parts_.layout, run.history, logical_, step_->list_columns);
  const OpContext context = free_context();
  const ModelGraph& graph = *parts_.graph;
  const bool drafts = layer >= 0 && layer == graph.draft_layer;
  if (op == graph.after.ops().front()) gather_last(graph, run.frame, *step_, drafts);
  if (op == graph.sum.read_by) {
    TensorParallelSum::Runner runner;
    runner.op = [&](int, int rank, const OpParams& params) {
      auto ok = call(run.lane, params, reference_call());
      if (ok) follow_shared(layer, params, rank, run.history);
      return ok;
    };
    runner.fetch = [](const as_tensor&) { return Result<void>(); };
    runner.wrote = [](const as_tensor&) {};
    if (auto ok = run.tensor_parallel.sum(layer, context, run.frame, source, runner); !ok)
      return ok;
  }
  run.last = layer_op_params(op, layer, context, run.frame, source);
  if (lists_selected(op)) {
    logical_top_k_slots(run.last.get<as_topk_to_slots_params>(), logical_);
    return {};
  }
  if (change_ != nullptr && change_->changes(op, layer)) {
    OpParams changed = run.last;
    change_->change_reference(layer, run.frame.kind() == Frame::Kind::kExact, changed);
    if (auto ok = call(run.lane, changed, host_call(parts_.threads)); !ok) return ok;
  } else if (auto ok = call(run.lane, run.last, reference_call()); !ok) {
    return ok;
  }
  if (layer >= 0 && !drafts && op == graph.layer(layer).ops().back()) {
    run.frame.swap(graph.hidden, graph.hidden_out);
  }
  return {};
}

Result<void> Verifier::compare_tap(int layer, const OpParams& params, std::uint32_t index,
                                   const std::string& lane, Whose whose) {
  const as_tap_info& tap = params.info().taps[index];
  const bool is_cache = tap.kind == AS_TAP_CACHE;
  const as_tensor value =
      is_cache ? gather_rows(params.cache(tap.offset), params.tensor(tap.mask_offset), gathered_)
               : params.tensor(tap.offset);
  TapResult result = blank(layer, params, tap.name, value, lane);
  auto rule = parts_.tolerances.find(params.op(), tap.name, lane, tolerance_class(params, tap),
                                     result.dtype);
  if (!rule) return rule.error();
  result.tolerance = rule->name;
  if (references_ == References::kNone) {
    results_.push_back(std::move(result));
    return {};
  }
  TapMask mask = mask_of(params, tap);
  std::vector<bool> left_out = huge_inputs_;
  if (bad_rows_ && !forced_->wild_tokens().empty()) {
    left_out.resize(forced_->wild_tokens().size());
    for (std::size_t t = 0; t < left_out.size(); ++t) {
      left_out[t] = left_out[t] || forced_->wild_tokens()[t];
    }
  }
  if (is_cache) leave_out_shared_slots(params.tensor(tap.mask_offset), left_out);
  if (static_cast<std::int64_t>(left_out.size()) == value.shape[0]) mask.left_out = &left_out;
  const OpParams& sim = forced_->params();
  const auto reference_of = [&](const OpParams& p) {
    return is_cache ? p.cache(tap.offset).data : p.tensor(tap.offset);
  };
  // What a quantising op wrote is judged on its own row before quantisation.
  const bool on_own_row = requantised_ && tap.follows_row != 0;
  Comparison comparison;
  std::string passed;  // an element that the comparison should not have passed
  if (rule->top_k && as_op_role(params.op()) != AS_ROLE_SELECT) {
    return bad_input(
        fmt::format("tolerances: kind top_k for tap {} of op {}", tap.name, params.info().name),
        "top_k is for indexer_topk alone");
  }
  if (rule->top_k) {
    const auto& p = params.get<as_indexer_topk_params>();
    comparison = compare_top_k(value, reference_of(sim), p.logits, at<std::int32_t>(p.lens), *rule);
  } else {
    const as_tensor& reference = reference_of(on_own_row ? requantised_params_ : sim);
    comparison = compare(value, reference, mask, *rule, parts_.threads);
    if (comparison.within) passed = passed_over(value, reference, mask, *rule);
    if (!passed.empty()) {
      comparison.within = comparison.equal = false;
      comparison.budget_used = std::numeric_limits<double>::infinity();
      ++comparison.figures.beyond;
    }
  }
  result.elements = comparison.elements;
  result.introduced = comparison.figures;
  result.budget_used = comparison.budget_used;
  result.note = comparison.note;
  bool equal = comparison.equal;
  if (on_own_row && comparison.within) {
    const ErrorFigures own = measure(value, reference_of(sim), mask, parts_.threads);
    if (own.differing > 0) {
      equal = false;
      result.note = fmt::format(
          "{} elements differ from ref.sim's own row and follow from 1-ulp differences before "
          "quantisation",
          own.differing);
    }
  }
  bool beyond_exact = false;
  if (is_quantiser(params) && references_ == References::kBoth) {
    beyond_exact = quantisation_error(params, tap, value, mask, *rule, result);
  }
  if (!comparison.within) {
    result.verdict = Verdict::kWrong;
    result.note = evidence(comparison, params, tap, value, step_);
    if (!passed.empty()) result.note += "; " + passed;
  } else if (comparison.near_tie) {
    result.verdict = Verdict::kNearTie;
  } else if (equal) {
    result.verdict = Verdict::kEqual;
  } else {
    result.verdict = beyond_exact ? Verdict::kQuantisation : Verdict::kRounding;
  }
  if (!comparison.worst.index.empty() && comparison.budget_used > 0) {
    result.worst = comparison.worst;
  }
  if (whose == Whose::kOwn) measure_free(params, tap, result);
  results_.push_back(std::move(result));
  if (rule->top_k && !comparison.equal) {
    swapped_ = swapped_places(value, reference_of(sim));
    swapped_result_ = results_.size() - 1;
  }
  return {};
}

// The selection that this attention read was another one than the reference's.
void Verifier::weigh_swaps(const OpParams& params) {
  if (swapped_.tokens.empty()) return;
  TapResult& result = results_[swapped_result_];
  const ListedAttention listed(params, swapped_.tokens);
  result.mass_moved = mass_moved(swapped_, listed.params(), parts_.threads);
  result.note += fmt::format("; up to {:.2g} of a head's attention moved", *result.mass_moved);
  swapped_ = {};
}

void Verifier::follow_shared(int layer, const OpParams& params, int peer, History& history) const {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps && !prefix_reuse_.empty(); ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_CACHE) continue;
    const CacheSpec& spec = spec_of(layer, params, tap, peer);
    if (spec.peer == peer) prefix_reuse_.follow(spec, shadow_, history);
  }
}

bool Verifier::quantisation_error(const OpParams& params, const as_tap_info& tap,
                                  const as_tensor& value, const TapMask& mask,
                                  const Tolerance& rule, TapResult& result) {
  const OpParams& exact = forced_exact_->params();
  if (tap.kind == AS_TAP_CACHE) {
    const as_cache& cache = params.cache(tap.offset);
    if (as_row_is_values(cache.record) != 0) return false;
    const as_tensor decoded = decode(value, cache, mask.slots, decoded_);
    result.quantisation = measure(decoded, exact.cache(tap.offset).data, mask, parts_.threads);
    return result.quantisation->max_abs > 0;
  }
  if (!is_float(value.dtype)) return false;
  const as_tensor& reference = exact.tensor(tap.offset);
  if (carries_scale(tap, value)) return false;  // in the engine, and not in ref.exact
  const Comparison comparison = compare(value, reference, mask, rule, parts_.threads);
  result.quantisation = comparison.figures;
  return !comparison.within;
}

void Verifier::measure_free(const OpParams& params, const as_tap_info& tap,
                            TapResult& result) const {
  if (free_sim_ == nullptr || tap.kind == AS_TAP_CACHE) return;
  const as_op_id op = params.op();
  if (params.info().phase == AS_PHASE_BEFORE || op == AS_OP_SAMPLE) return;
  const as_tensor& value = params.tensor(tap.offset);
  const as_tensor& sim = free_sim_->last.tensor(tap.offset);
  if (as_op_role(op) == AS_ROLE_SELECT) {
    const auto& p = params.get<as_indexer_topk_params>();
    const auto& q = free_sim_->last.get<as_indexer_topk_params>();
    result.selection =
        selection_drift(p.indices, p.logits, q.indices, q.logits, at<std::int32_t>(p.lens));
    return;
  }
  if (!is_float(value.dtype) || !is_float(sim.dtype)) return;
  const TapMask mask = mask_of(params, tap);
  result.inherited = measure(value, sim, mask, parts_.threads);
  if (free_exact_ == nullptr || result.quantisation) return;
  const as_tensor& exact = free_exact_->last.tensor(tap.offset);
  // Those of ref.exact carry no scale.
  if (is_float(exact.dtype) && !carries_scale(tap, value)) {
    result.quantisation = measure(sim, exact, mask, parts_.threads);
  }
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
