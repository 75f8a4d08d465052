#include "engine/session/what_if/what_if.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "engine/backend/call_op.h"
#include "engine/session/place.h"
#include "engine/session/step/most_taps.h"
#include "engine/session/step/own_rows.h"
#include "engine/session/step/rows_as_read.h"
#include "engine/session/verify/forced_copy.h"
#include "engine/session/verify/reference_call.h"
#include "engine/session/what_if/what_if_changes.h"
#include "engine/trace/compare.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

Result<void> call(as_op_fn function, const OpParams& params, const as_threads* threads) {
  return call_op(function, params.data(), host_call(threads));
}

// 1-cos of an output rounded to bf16 is far below.
constexpr double kRounding = 1e-5;

class Trial {
 public:
  Trial(const Session& session, UnquantisedRows* unquantised)
      : session_(session), unquantised_(unquantised) {}

  // function: of a lane.
  WhatIf run(const Change& change, as_op_fn function) {
    WhatIf out = named(change);
    OpParams lane = session_.last_params();
    ChangedInputs memory;
    const std::vector<int>& layers = session_.parts().config.layers;
    const auto layer = std::ranges::find(layers, last_place(session_).layer);
    memory.layer = layer == layers.end() ? -1 : static_cast<int>(layer - layers.begin());
    memory.free = session_.verifier().free_params(false);
    if (!change.apply(session_, lane, memory)) {
      out.error = WhatIf::kDoesNotApply;
      return out;
    }
    const OpParams inputs = lane;
    OpParams reference = lane;
    make_outputs(lane, false, lane_outputs_);
    make_outputs(reference, true, reference_outputs_);
    RowsAsRead rows;
    rows.replace(inputs, reference);
    const SessionParts& parts = session_.parts();
    auto ran = call(function, lane, parts.threads);
    if (ran) ran = call(parts.sim->ops[lane.op()], reference, parts.threads);
    if (!ran) {
      out.error = ran.error().message;
      return out;
    }
    out.introduced = compare_all(lane, reference);
    if (!hold_against_exact(inputs, lane, out)) return out;
    const bool agrees = change.apply == changes_of(lane.op()).front().apply ||
                        std::string_view(change.name) == kReferenceLists;
    if (agrees) out.from_history = from_history(lane);
    return out;
  }

  // The op by a reference alone, as it ran but for the rows: those that were never quantised.
  WhatIf run_unquantised() {
    const Change change{"unquantised cache", "the rows as they were before quantisation", nullptr};
    return run_reference(change, session_.parts().sim, true);
  }
  WhatIf run_fp32(const Lane* fp32) {
    const Change change{"fp32 accumulation", "products and sums of ref.sim in fp32", nullptr};
    WhatIf out = run_reference(change, fp32, false);
    out.other_code = true;
    return out;
  }

 private:
  static WhatIf named(const Change& change) {
    WhatIf out;
    out.change = change.name;
    out.sentence = change.sentence;
    return out;
  }

  WhatIf run_reference(const Change& change, const Lane* by, bool unquantised) {
    WhatIf out = named(change);
    const OpParams& inputs = session_.last_params();
    OpParams changed = inputs, reference = inputs;
    make_outputs(changed, false, lane_outputs_);
    make_outputs(reference, true, reference_outputs_);
    RowsAsRead rows;
    rows.replace(inputs, reference);
    rows_of_changed_.replace(inputs, changed);
    if (unquantised && (unquantised_ == nullptr || !unquantised_->replace(inputs, changed))) {
      out.error = WhatIf::kDoesNotApply;
      return out;
    }
    const SessionParts& parts = session_.parts();
    auto ran = call(by->ops[inputs.op()], changed, parts.threads);
    if (ran && !unquantised) ran = call(parts.sim->ops[inputs.op()], reference, parts.threads);
    if (!ran) {
      out.error = ran.error().message;
      return out;
    }
    if (!unquantised) out.introduced = compare_all(changed, reference);
    hold_against_exact(inputs, changed, out);
    return out;
  }

  // False when ref.exact refused.
  bool hold_against_exact(const OpParams& inputs, const OpParams& value, WhatIf& out) {
    if (unquantised_ == nullptr || !reads_quantised_rows(inputs.op())) return true;
    OpParams exact = inputs;
    make_outputs(exact, true, exact_outputs_);
    if (!unquantised_->replace(inputs, exact)) return true;
    const SessionParts& parts = session_.parts();
    if (auto ran = call(parts.exact->ops[inputs.op()], exact, parts.threads); !ran) {
      out.error = ran.error().message;
      return false;
    }
    out.from_exact = compare_all(value, exact);
    return true;
  }

  // Of the first float output. Absent where ref.sim has no history.
  std::optional<double> from_history(const OpParams& lane) const {
    const OpParams* free = session_.verifier().free_params(false);
    if (free == nullptr || free->op() != lane.op()) return {};
    const as_op_info& info = lane.info();
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_TENSOR) continue;
      const as_tensor &value = lane.tensor(tap.offset), &own = free->tensor(tap.offset);
      if (!present(value) || !present(own) || !is_float(value.dtype) || !is_float(own.dtype)) {
        continue;
      }
      return measure(value, own, mask_of(lane.data(), tap)).cosine;
    }
    return {};
  }

  using Outputs = std::array<Scratch, kMostTaps>;

  // Rows of a cache go to rows of their own, one a token.
  void make_outputs(OpParams& params, bool sim, Outputs& to) {
    const as_op_info& info = params.info();
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (tap.direction != AS_TAP_OUT) continue;
      if (tap.kind == AS_TAP_CACHE && !params.has_cache(tap)) continue;
      if (tap.kind == AS_TAP_CACHE) {
        as_tensor& told = params.tensor(tap.mask_offset);
        const std::int64_t tokens = told.shape[0];
        if (slots_.empty()) {
          for (std::int64_t t = 0; t < tokens; ++t) {
            slots_.push_back(*at<std::int64_t>(told, t) >= 0 ? t : -1);
          }
        }
        told = make_tensor(slots_.data(), {tokens});
        as_cache& cache = params.cache(tap.offset);
        make_logical(cache, tokens, sim ? AS_F64 : AS_F32, to[i]);
        poison(cache.data);
        continue;
      }
      as_tensor& tensor = params.tensor(tap.offset);
      if (!present(tensor)) continue;
      tensor = to[i].make_like(sim && is_float(tensor.dtype) ? AS_F64 : tensor.dtype, tensor);
      poison(tensor);
    }
  }

  static void poison(const as_tensor& t) {
    std::memset(t.data, 0xFF,
                static_cast<std::size_t>(as_tensor_numel(&t) * as_dtype_size(t.dtype)));
  }

  Held compare_all(const OpParams& lane, const OpParams& reference) const {
    Held out;
    const as_op_info& info = lane.info();
    // Codes follow from rows that may differ by a rounding: rows are what is compared then.
    const bool has_row = std::any_of(info.taps, info.taps + info.num_taps, [&](const auto& tap) {
      return std::string_view(tap.rule) == "row" && tap.kind == AS_TAP_TENSOR &&
             present(lane.tensor(tap.offset));
    });
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (tap.direction != AS_TAP_OUT) continue;
      const bool cache = tap.kind == AS_TAP_CACHE;
      const as_tensor value = cache ? lane.cache(tap.offset).data : lane.tensor(tap.offset);
      const as_tensor other =
          cache ? reference.cache(tap.offset).data : reference.tensor(tap.offset);
      if (!present(value) || (has_row && value.dtype == AS_U8)) continue;
      if (has_row && std::string_view(tap.rule) == "weights") continue;
      const auto rule = session_.parts().tolerances.find(
          lane.op(), tap.name, "", tolerance_class(lane, tap), as_dtype_name(value.dtype));
      if (!rule) continue;
      Comparison c;
      if (rule->top_k) {
        const auto& p = lane.get<as_indexer_topk_params>();
        c = compare_top_k(value, other, p.logits, at<std::int32_t>(p.lens), *rule);
      } else {
        c = compare(value, other, mask_of(lane.data(), tap), *rule);
      }
      if (c.budget_used >= out.budget_used) {
        out.budget_used = c.budget_used;
        out.elements = c.elements;
        out.beyond = c.figures.beyond;
        out.worst_tap = tap.name;
        out.worst_row = c.worst.index.empty() ? -1 : c.worst.index.front();
      }
    }
    return out;
  }

  const Session& session_;
  UnquantisedRows* unquantised_;
  RowsAsRead rows_of_changed_;
  std::vector<std::int64_t> slots_;
  Outputs lane_outputs_, reference_outputs_, exact_outputs_;
};

}  // namespace

Result<std::vector<WhatIf>> what_if(const Session& session, const LaneRegistry& registry,
                                    const WhatIfOptions& options) {
  if (!session.ran_any()) return nothing_to_change(AS_OP_SCHEDULE);
  if (session.last_params().info().phase == AS_PHASE_BEFORE) {
    return nothing_to_change(session.last_params().op());
  }
  if (session.references() == References::kNone) {
    return usage_error("what-if needs a reference", "run with --references sim or both");
  }
  const as_op_id op = session.last_params().op();
  std::vector<WhatIf> results;
  const auto keep = [&](WhatIf result) {
    if (result.applies()) results.push_back(std::move(result));
  };
  Trial trial(session, options.unquantised);
  const std::vector<Change> changes = changes_of(op);
  for (const Change& change : changes) keep(trial.run(change, session.lanes().function(op)));
  keep(trial.run_unquantised());
  if (options.fp32 != nullptr) keep(trial.run_fp32(options.fp32));
  for (const std::string& name : options.lanes) {
    const Lane* lane = registry.find(name);
    if (lane == nullptr || lane->ops[op] == nullptr || name == session.lanes().lane(op)) continue;
    WhatIf result = trial.run(changes.front(), lane->ops[op]);
    result.change = "lane " + name;
    result.sentence = "nothing else changed";
    result.other_code = true;
    keep(std::move(result));
  }
  return results;
}

std::string what_if_sentence(const std::vector<WhatIf>& results) {
  if (results.empty()) return "Nothing was run.";
  const auto named = [&](std::string_view name) -> const WhatIf* {
    const auto found =
        std::ranges::find_if(results, [&](const WhatIf& r) { return r.change == name; });
    return found != results.end() ? &*found : nullptr;
  };
  std::string text;
  const WhatIf& ran = results.front();
  if (ran.right()) {
    text = "The op is right as it ran: there is no error to remove.";
  } else {
    std::vector<std::string> cures, others;
    for (std::size_t i = 1; i < results.size(); ++i) {
      if (!results[i].introduced || !results[i].right()) continue;
      if (results[i].change == kSinkTakesAll) continue;
      (results[i].other_code ? others : cures).push_back(results[i].change);
    }
    text = cures.empty() ? "No single change of its inputs removes the error."
                         : fmt::format("The error goes away with: {}.", fmt::join(cures, "; "));
    if (!others.empty()) text += fmt::format(" Right as well: {}.", fmt::join(others, "; "));
  }
  const WhatIf* unquantised = named("unquantised cache");
  if (unquantised != nullptr && unquantised->from_exact && ran.from_exact) {
    const double before = ran.from_exact->budget_used, after = unquantised->from_exact->budget_used;
    text += fmt::format(
        " From ref.exact it is {:.3g} times the tolerance away, with unquantised rows {:.3g} "
        "times{}",
        before, after,
        before > 1 && after <= 1 && ran.right() ? ": that is the cache's format." : ".");
  }
  const WhatIf* lists = named(kReferenceLists);
  if (lists != nullptr && lists->from_history && ran.from_history) {
    const double before = *ran.from_history, after = *lists->from_history;
    text += fmt::format(
        " From ref.sim's own history it is {:.2g} away (1-cos), with the rows that ref.sim "
        "attends to {:.2g}{}",
        before, after,
        before > kRounding && after <= before / 10 ? ": what differs is which rows it reads."
                                                   : ".");
  }
  return text;
}

}  // namespace attnscope
