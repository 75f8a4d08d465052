// The verifier's forced references: what they are fed, and what they say of each tap.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "engine/session/step/listed_attention.h"
#include "engine/session/step/merged_parts.h"
#include "engine/session/verify/evidence.h"
#include "engine/session/verify/forced_run.h"
#include "engine/session/verify/judging.h"
#include "engine/session/verify/reference_call.h"
#include "engine/session/verify/verifier.h"
#include "engine/trace/recheck.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/params/op_table.h"
#include "kernels/params/paged_params.h"
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
                  (params.has_cache(tap) ||
                   (tap.kind == AS_TAP_TENSOR && present(params.tensor(tap.offset))));
         });
}

// The scales beside a cache: those that an op is given for it.
as_tensor scales_beside(const OpParams& params, const as_tap_info& cache) {
  if (params.op() != AS_OP_ROPE_KV_INSERT) return no_tensor();
  const auto& p = params.get<as_rope_kv_insert_params>();
  if (cache.offset == offsetof(as_rope_kv_insert_params, k_cache)) return p.k_scale;
  return cache.offset == offsetof(as_rope_kv_insert_params, v_cache) ? p.v_scale : no_tensor();
}

// Records of one cache tap as values [T, width].
as_tensor decode(const as_tensor& rows, const as_cache& cache, const as_tensor& scales,
                 const std::int64_t* slots, Scratch& scratch) {
  as_tensor out = scratch.make(AS_F32, {rows.shape[0], cache.width});
  const std::int64_t payload = as_cache_layout(&cache).payload;
  for (std::int64_t t = 0; t < rows.shape[0]; ++t) {
    if (slots[t] < 0) continue;
    const auto* row = at<std::uint8_t>(rows, t);
    if (cpu::is_coded(cache.record)) {
      cpu::decode_kv_row(cache, scales, row, at<float>(out, t));
      continue;
    }
    cpu::decode_row(cache.record, cache.width, row, row + payload, at<float>(out, t));
  }
  return out;
}

// The class of attention that is merged of rounded parts.
constexpr const char* kAttentionOfParts = "attention_of_parts";

const char* class_in_session(const SessionParts& parts, int layer, const OpParams& params,
                             const as_tap_info& tap) {
  const char* rule = tolerance_class(params, tap);
  const bool merged = std::strcmp(rule, "attention") == 0 && is_merged(parts, layer, params.op());
  return merged ? kAttentionOfParts : rule;
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

}  // namespace

const OpParams& Verifier::forced() const { return last_forced_->sim.params(); }

Result<void> Verifier::run_forced(Judging& j) {
  const auto make = [&](ForcedCopy& copy, bool exact) -> OpParams& {
    return copy.make(j.params, j.layer, logical_, exact, j.bad_rows, j.peer);
  };
  if (auto ok = call_reference(parts_.sim, make(j.run->sim, false), j.call); !ok) return ok;
  if (!is_quantiser(j.params)) return {};
  if (j.run->sim.requantise(j.params, &j.requantised_params)) {
    j.requantised = true;
    if (auto ok = call_reference(parts_.sim, j.requantised_params, j.call); !ok) return ok;
  }
  if (references_ != References::kBoth) return {};
  return call_reference(parts_.exact, make(j.run->exact, true), j.call);
}

void Verifier::gather_written(Judging& j) {
  const as_op_info& info = j.params.info();
  j.written.resize(info.num_taps);
  std::vector<Scratch>& memory = j.memory->gathered;
  memory.resize(std::max<std::size_t>(memory.size(), info.num_taps));
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || !j.params.has_cache(tap)) continue;
    j.written[i] =
        gather_rows(j.params.cache(tap.offset), j.params.tensor(tap.mask_offset), memory[i]);
  }
}

Result<void> Verifier::compare_tap(Judging& j, std::uint32_t index) {
  const OpParams& params = j.params;
  const as_tap_info& tap = params.info().taps[index];
  const bool is_cache = tap.kind == AS_TAP_CACHE;
  const as_tensor& value = is_cache ? j.written[index] : params.tensor(tap.offset);
  TapResult result = blank(j.layer, params, tap.name, value, j.lane);
  auto rule = parts_.tolerances.find(params.op(), tap.name, j.lane,
                                     class_in_session(parts_, j.layer, params, tap), result.dtype);
  if (!rule) return rule.error();
  result.tolerance = rule->name;
  if (references_ == References::kNone) {
    j.results.push_back(std::move(result));
    j.taps.push_back(index);
    return {};
  }
  const as_threads* const threads = j.call.threads;
  TapMask mask = mask_of(params.data(), tap);
  std::vector<bool> left_out = j.huge;
  const std::vector<bool>& wild = j.run->sim.wild_tokens();
  if (j.bad_rows && !wild.empty()) {
    left_out.resize(wild.size());
    for (std::size_t t = 0; t < left_out.size(); ++t) left_out[t] = left_out[t] || wild[t];
  }
  if (is_cache) leave_out_shared_slots(params.tensor(tap.mask_offset), left_out);
  if (static_cast<std::int64_t>(left_out.size()) == value.shape[0]) mask.left_out = &left_out;
  const OpParams& sim = j.run->sim.params();
  const auto reference_of = [&](const OpParams& p) {
    return is_cache ? p.cache(tap.offset).data : p.tensor(tap.offset);
  };
  // What a quantising op wrote is judged on its own row before quantisation.
  const bool on_own_row = j.requantised && tap.follows_row != 0;
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
    const as_tensor& reference = reference_of(on_own_row ? j.requantised_params : sim);
    comparison = compare(value, reference, mask, *rule, threads);
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
    const ErrorFigures own = measure(value, reference_of(sim), mask, threads);
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
    beyond_exact = quantisation_error(j, tap, value, mask, *rule, result);
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
  if (rule->top_k && !comparison.equal) {
    j.swapped = swapped_places(value, reference_of(sim));
    j.swapped_result = j.results.size();
  }
  j.results.push_back(std::move(result));
  j.taps.push_back(index);
  return {};
}

bool Verifier::quantisation_error(const Judging& j, const as_tap_info& tap, const as_tensor& value,
                                  const TapMask& mask, const Tolerance& rule, TapResult& result) {
  const OpParams& params = j.params;
  const as_threads* const threads = j.call.threads;
  const OpParams& exact = j.run->exact.params();
  if (tap.kind == AS_TAP_CACHE) {
    const as_cache& cache = params.cache(tap.offset);
    if (as_row_is_values(cache.record) != 0) return false;
    const as_tensor decoded =
        decode(value, cache, scales_beside(params, tap), mask.slots, j.run->decoded);
    result.quantisation = measure(decoded, exact.cache(tap.offset).data, mask, threads);
    return result.quantisation->max_abs > 0;
  }
  if (!is_float(value.dtype)) return false;
  const as_tensor& reference = exact.tensor(tap.offset);
  if (carries_scale(tap, value)) return false;  // in the engine, and not in ref.exact
  const Comparison comparison = compare(value, reference, mask, rule, threads);
  result.quantisation = comparison.figures;
  return !comparison.within;
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

}  // namespace attnscope
