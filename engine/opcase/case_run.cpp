#include "engine/opcase/case_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "engine/backend/call_op.h"
#include "engine/model/numbers.h"
#include "engine/opcase/checked_blocks.h"
#include "engine/opcase/near_codes.h"
#include "engine/opcase/reference_call.h"
#include "engine/session/step/op_params.h"
#include "engine/session/verify/forced_copy.h"
#include "engine/session/verify/reference_call.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

Result<void> call(as_op_fn function, const void* params, const std::string& lane, const CaseOp& op,
                  const as_threads* threads, double* microseconds = nullptr) {
  const auto start = std::chrono::steady_clock::now();
  auto ran = call_op(function, params, host_call(threads));
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  if (microseconds != nullptr) *microseconds = elapsed.count();
  if (ran) return ran;
  return Error{
      ran.error().code, fmt::format("{}: lane {}: {}", op.name, lane, ran.error().message), {}};
}

StoredTensor stored_copy(const as_tensor& t) {
  const auto* bytes = static_cast<const std::uint8_t*>(t.data);
  const auto size = static_cast<std::size_t>(as_tensor_numel(&t) * as_dtype_size(t.dtype));
  return {t.dtype, {t.shape, t.shape + t.rank}, {}, {bytes, bytes + size}};
}

Verdict verdict_of(const Comparison& c) {
  if (!c.within) return Verdict::kWrong;
  if (c.near_tie) return Verdict::kNearTie;
  return c.equal ? Verdict::kEqual : Verdict::kRounding;
}

class Judge {
 public:
  Judge(const OpCase& kept, const CaseLane& lane, const CaseRunOptions& options, CaseRun& out)
      : kept_(kept), lane_(lane), options_(options), out_(out) {}

  Result<void> kernel(const CaseCall& call) {
    if (quantises(kept_) && options_.sim != nullptr) {
      if (auto ok = requantise(call); !ok) return ok;
    }
    for (const as_tap_info& tap : kept_.op.taps) {
      if (kept_.unknown.contains(tap.name)) continue;
      if (reads_tap(tap, call.params())) {
        check_input(call, tap);
      } else if (const auto c = kept_.caches.find(tap.name); c != kept_.caches.end()) {
        if (auto ok = cache_output(call, tap, c->second); !ok) return ok;
      } else if (const auto t = kept_.tensors.find(tap.name); t != kept_.tensors.end()) {
        const as_tensor value = call.tensor(tap);
        if (auto ok =
                compare_tap(tap, value, stored_view(t->second), mask_of(call.params(), tap), call);
            !ok) {
          return ok;
        }
      }
    }
    return {};
  }

  // The stored outputs against a reference's.
  Result<void> reference(const CaseCall& call, const ReferenceCall& reference) {
    for (const as_tap_info& tap : kept_.op.taps) {
      if (reads_tap(tap, call.params()) || kept_.unknown.contains(tap.name)) continue;
      as_tensor value;
      Scratch gathered;
      if (kept_.caches.contains(tap.name)) {
        value = gather_rows(call.cache(tap), tensor_at(call.params(), tap.mask_offset), gathered);
      } else if (const auto t = kept_.tensors.find(tap.name); t != kept_.tensors.end()) {
        value = stored_view(t->second);
      } else {
        continue;
      }
      if (auto ok =
              compare_tap(tap, value, reference.output(tap), mask_of(call.params(), tap), call);
          !ok) {
        return ok;
      }
    }
    return {};
  }

 private:
  Result<void> requantise(const CaseCall& call) {
    const as_tap_info* row = as_op_row(kept_.op.id);
    if (row == nullptr || !present(call.tensor(*row)) || reads_tap(*row, call.params())) {
      return {};
    }
    if (auto ok = requantised_.make(call, true); !ok) return ok;
    if (auto ok = attnscope::call(options_.sim, requantised_.params(), "ref.sim", kept_.op,
                                  options_.threads);
        !ok) {
      return ok;
    }
    has_requantised_ = true;
    return {};
  }

  void check_input(const CaseCall& call, const as_tap_info& tap) {
    Scratch gathered;
    if (tap.kind == AS_TAP_CACHE) {
      const auto it = kept_.caches.find(tap.name);
      if (it == kept_.caches.end()) return;
      check_cache(call, tap, it->second, "input cache");
      return;
    }
    const auto it = kept_.tensors.find(tap.name);
    if (it == kept_.tensors.end()) return;
    const as_tensor now = call.tensor(tap), before = stored_view(it->second);
    Tolerance exact;
    exact.exact = true;
    const Comparison c = compare(now, before, {}, exact);
    if (!c.equal) out_.trespasses.push_back(fmt::format("input {}", tap.name));
  }

  // Every byte of the cache is that of a kept row, or 0xff.
  void check_cache(const CaseCall& call, const as_tap_info& tap, const StoredCache& kept,
                   const char* what) {
    const as_cache& cache = call.cache(tap);
    const auto bytes = static_cast<std::size_t>(kept.page_stride);
    std::vector<std::uint8_t> expected(bytes);
    as_cache other = cache;  // one block with what may be there; what may be anything is taken over
    other.data.data = expected.data();
    std::size_t wrong = 0, first = 0, row = 0;
    std::int64_t in_block = -1;
    each_checked_block(kept, [&](std::int64_t block, std::span<const std::int64_t> slots) {
      std::memset(expected.data(), 0xff, bytes);
      for (const std::int64_t slot : slots) {
        const std::int64_t here = slot % kept.rows_per_block;
        if (tap.direction == AS_TAP_IN) {
          as_row_put(&other, here, kept.rows.data() + row * to_size(kept.row_bytes()));
        } else {
          as_row_copy(&cache, slot, &other, here);
        }
        ++row;
      }
      const auto* now =
          static_cast<const std::uint8_t*>(cache.data.data) + block * kept.page_stride;
      if (std::memcmp(now, expected.data(), bytes) == 0) return;
      for (std::size_t i = 0; i < bytes; ++i) {
        if (now[i] == expected[i]) continue;
        if (wrong++ > 0) continue;
        first = i;
        in_block = block;
      }
    });
    if (wrong == 0) return;
    out_.trespasses.push_back(fmt::format("{} {}: {} bytes, the first at byte {} of block {}", what,
                                          tap.name, wrong, first, in_block));
  }

  Result<void> cache_output(const CaseCall& call, const as_tap_info& tap,
                            const StoredCache& stored) {
    check_cache(call, tap, stored, "cache");
    const as_tensor slots =
        make_tensor(stored.slots.data(), {static_cast<std::int64_t>(stored.slots.size())});
    Scratch gathered;
    const as_tensor value = gather_rows(call.cache(tap), slots, gathered);
    return compare_tap(tap, value, stored_rows(stored), {}, call);
  }

  Result<void> compare_tap(const as_tap_info& tap, const as_tensor& value,
                           const as_tensor& reference, const TapMask& mask, const CaseCall& call) {
    CaseTap out;
    out.tap = tap.name;
    out.dtype = as_dtype_name(value.dtype);
    out.shape.assign(value.shape, value.shape + value.rank);
    const std::string of = class_of_output(kept_, tap, call.params());
    auto rule = case_rule(kept_.op, tap, of, lane_.name, out.dtype.c_str(), *options_.tolerances);
    if (!rule) return rule.error();
    out.tolerance = rule->name;
    out.rule = *rule;
    if (rule->top_k) {
      const auto& p = *static_cast<const as_indexer_topk_params*>(call.params());
      const auto* lens = at<std::int32_t>(p.lens);
      out.comparison = compare_top_k(value, reference, p.logits, lens, *rule);
      if (options_.judge_kept_lists && !lane_.reference && out.comparison.within) {
        Comparison kept = compare_top_k(reference, value, p.logits, lens, *rule);
        if (!kept.within) {
          std::swap(kept.worst.value, kept.worst.reference);
          out.comparison = std::move(kept);
          out.note = "in the case, " + out.comparison.note;
        }
      }
    } else {
      out.comparison = compare(value, reference, mask, *rule);
    }
    if (!out.comparison.within && has_requantised_ && tap.follows_row != 0) {
      on_own_row(tap, call, *rule, out);
    }
    if (!out.comparison.within && lane_.reference && quantises(kept_) && tap.follows_row != 0) {
      if (auto ok = on_near_rows(tap, value, mask, out); !ok) return ok;
    }
    if (options_.keep_references) out.reference = stored_copy(reference);
    out.verdict = verdict_of(out.comparison);
    if (out.note.empty()) out.note = out.comparison.note;
    out_.taps.push_back(std::move(out));
    return {};
  }

  // Codes are judged on the lane's own row, which has a tolerance of its own.
  void on_own_row(const as_tap_info& tap, const CaseCall& call, const Tolerance& rule,
                  CaseTap& out) {
    const std::int64_t differing = out.comparison.figures.differing;
    Scratch gathered;
    const as_tensor value =
        tap.kind == AS_TAP_CACHE
            ? gather_rows(call.cache(tap), tensor_at(call.params(), tap.mask_offset), gathered)
            : call.tensor(tap);
    const Comparison own =
        compare(value, requantised_.output(tap), mask_of(call.params(), tap), rule);
    if (!own.within) return;
    out.comparison = own;
    out.comparison.equal = false;
    out.note =
        fmt::format("{} elements differ from the case and follow from the row before", differing);
  }

  // Codes without the row that they were made of: of a row one rounding away.
  Result<void> on_near_rows(const as_tap_info& tap, const as_tensor& value, const TapMask& mask,
                            CaseTap& out) {
    if (!near_) {
      near_.emplace();
      if (auto ok = near_->make(kept_, lane_.function, options_.threads); !ok) return ok;
    }
    const NearCodes::Found found = near_->find(tap, value, mask);
    if (found.unexplained > 0) return {};
    const std::int64_t differing = out.comparison.figures.differing;
    out.comparison.within = true;
    out.comparison.budget_used = 1;
    out.comparison.figures.beyond = 0;
    out.note =
        found.zeros == differing
            ? fmt::format("{} elements are 0 where -0 was expected, which is the same value",
                          differing)
            : fmt::format("{} elements differ and follow from a row one rounding away", differing);
    return {};
  }

  const OpCase& kept_;
  const CaseLane& lane_;
  const CaseRunOptions& options_;
  CaseRun& out_;
  ReferenceCall requantised_;
  bool has_requantised_ = false;
  std::optional<NearCodes> near_;
};

std::string hint_of_refused(const OpCase& kept, const CaseRunOptions& options) {
  if (!options.refused.empty()) return options.refused;
  return kept.origin.step < 0
             ? "its map gives a record, sizes or slots that the call does not "
               "take: correct the map and import it again"
             : "it is damaged, or was saved of a call that read beyond its tensors";
}

// Runs the lane; the last call's memory is left in the result.
Result<CaseCall> run_lane(const OpCase& kept, const CaseLane& lane, const CaseRunOptions& options,
                          double* microseconds) {
  if (options.guard != nullptr) {
    auto guarded = CaseCall::make(kept);
    if (!guarded) return guarded.error();
    auto ok = call(options.guard, guarded->params(), "cpu", kept.op, options.threads);
    if (!ok) {
      return bad_input(fmt::format("the case cannot be run: {}", ok.error().message),
                       hint_of_refused(kept, options));
    }
  }
  *microseconds = std::numeric_limits<double>::infinity();
  for (int i = 0;; ++i) {
    auto made = CaseCall::make(kept);
    if (!made) return made.error();
    double elapsed = 0;
    auto ok = call(lane.function, made->params(), lane.name, kept.op, options.threads, &elapsed);
    if (!ok) return ok.error();
    *microseconds = std::min(*microseconds, elapsed);
    if (i + 1 >= options.repeat) return made;
  }
}

// Memory with the stored outputs in it, for a reference to be compared with.
Result<CaseCall> with_outputs(const OpCase& kept) {
  auto call = CaseCall::make(kept);
  if (!call) return call;
  for (const as_tap_info& tap : kept.op.taps) {
    const auto it = kept.caches.find(tap.name);
    if (it == kept.caches.end() || reads_tap(tap, call->params())) continue;
    put_stored_rows(it->second, call->cache(tap));
  }
  return call;
}

}  // namespace

std::string class_of_output(const OpCase& kept, const as_tap_info& tap, const void* params) {
  const auto named = kept.classes.find(tap.name);
  if (named != kept.classes.end()) return named->second;
  if (kept.op.helper) return tap.rule;
  return tolerance_class(*as_op_find(static_cast<as_op_id>(kept.op.id)), params, tap);
}

Result<Tolerance> case_rule(const CaseOp& op, const as_tap_info& tap, const std::string& rule,
                            const std::string& lane, const char* dtype,
                            const Tolerances& tolerances) {
  if (!op.helper) {
    return tolerances.find(static_cast<as_op_id>(op.id), tap.name, lane, rule, dtype);
  }
  const auto it = tolerances.classes().find(rule);
  if (it != tolerances.classes().end()) return it->second;
  return bad_input(
      fmt::format("tolerances: no class \"{}\" for tap {} of op {}", rule, tap.name, op.name),
      "add the class to tolerances.json");
}

std::int64_t CaseRun::compared() const {
  std::int64_t elements = 0;
  for (const CaseTap& tap : taps) elements += tap.comparison.elements;
  return elements;
}

bool CaseRun::right() const {
  return compared() > 0 && trespasses.empty() &&
         std::none_of(taps.begin(), taps.end(),
                      [](const CaseTap& t) { return t.verdict == Verdict::kWrong; });
}

Result<CaseRun> run_case(const OpCase& kept, const CaseLane& lane, const CaseRunOptions& options) {
  CaseRun out;
  out.lane = lane.name;
  Judge judge(kept, lane, options, out);
  if (!lane.reference) {
    auto ran = run_lane(kept, lane, options, &out.microseconds);
    if (!ran) return ran.error();
    if (auto ok = judge.kernel(*ran); !ok) return ok.error();
    return out;
  }
  if (options.guard != nullptr) {
    double ignored = 0;
    auto guarded = run_lane(kept, {"cpu", options.guard}, options, &ignored);
    if (!guarded) return guarded.error();
  }
  auto stored = with_outputs(kept);
  if (!stored) return stored.error();
  ReferenceCall reference;
  if (auto ok = reference.make(*stored, false); !ok) return ok.error();
  auto ok = call(lane.function, reference.params(), lane.name, kept.op, options.threads,
                 &out.microseconds);
  if (!ok) return ok.error();
  if (auto judged = judge.reference(*stored, reference); !judged) return judged.error();
  return out;
}

Result<OpCase> rerun_case(const OpCase& kept, const CaseLane& lane, const CaseRunOptions& options) {
  if (lane.reference) {
    return usage_error(fmt::format("lane {} writes no bytes of a cache", lane.name),
                       "choose a kernel lane");
  }
  double ignored = 0;
  auto ran = run_lane(kept, lane, options, &ignored);
  if (!ran) return ran.error();
  CaseOrigin origin = kept.origin;
  origin.lane = lane.name;
  return keep_case(kept.op, ran->params(), std::move(origin));
}

}  // namespace attnscope
