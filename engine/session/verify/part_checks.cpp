#include "engine/session/verify/part_checks.h"

#include <tuple>

#include "engine/session/verify/evidence.h"
#include "engine/session/verify/reference_call.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

Result<void> PartChecks::merged(int layer, const OpParams& whole, const OpParams& resident,
                                const OpParams& missed) {
  OpParams out = whole, a = resident, b = missed;
  const as_tensor o = out.tensor_named("o"), lse = out.tensor_named("lse");
  const as_tensor sinks = whole.op() == AS_OP_SPARSE_ATTENTION
                              ? whole.get<as_sparse_attention_params>().sinks
                              : no_tensor();
  const as_tensor due_o = o_.make_like(o.dtype, o), due_lse = lse_.make_like(lse.dtype, lse);
  RowOverlap::Merging how;
  how.merge = [&](as_merge_states_params& merge, bool) {
    return call_reference(parts_.sim, OpParams::of(AS_OP_MERGE_STATES, &merge),
                          host_call(parts_.threads));
  };
  auto ok = RowOverlap::merge_parts(a.tensor_named("o"), a.tensor_named("lse"), b.tensor_named("o"),
                                    b.tensor_named("lse"), sinks, due_o, due_lse, memory_, how);
  if (!ok) return ok;
  for (const auto& [tap, value, due] :
       {std::tuple{"lse", lse, due_lse}, std::tuple{"out", o, due_o}}) {
    const as_op_info& merge = *as_op_find(AS_OP_MERGE_STATES);
    const as_tap_info* info = merge.taps;
    while (std::string_view(tap) != info->name) ++info;
    const auto rule = parts_.tolerances.find(AS_OP_MERGE_STATES, tap, lane_, info->rule,
                                             as_dtype_name(value.dtype));
    if (!rule) return rule.error();
    const Comparison comparison = compare(value, due, {}, *rule, parts_.threads);
    if (comparison.within) continue;
    TapResult result =
        wrong_result(whole.op(), "merge", comparison.figures.beyond, comparison.figures.beyond,
                     "merge of what lay in the pool and what was missed: " +
                         evidence(comparison, OpParams(AS_OP_MERGE_STATES), *info, value, step_));
    result.layer = parts_.config.layers[static_cast<std::size_t>(layer)];
    result.lane = lane_;
    verifier_.found(std::move(result));
    return {};
  }
  return {};
}

}  // namespace attnscope
