#include "app/reports/case_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/opcase/case_run.h"
#include "kernels/params/op_table.h"

namespace attnscope {

Result<void> check_kept(const OpCase& kept, const LaneRegistry& lanes) {
  const std::string& name = kept.origin.lane;
  // The scheduler's ops run in a session alone.
  const bool alone = as_op_has(kept.op.id, AS_BY_ENGINE) == 0;
  const bool of_host = alone && (name == "cpu" || name.starts_with("mutant:"));
  const Lane* lane = of_host && !kept.op.helper ? lanes.find(name) : nullptr;
  if (lane == nullptr || lane->ops[kept.op.id] == nullptr) return {};
  auto tolerances = Tolerances::load();
  if (!tolerances) return tolerances.error();
  CaseRunOptions options;
  options.tolerances = &*tolerances;
  auto again = run_case(kept, {name, lane->ops[kept.op.id]}, options);
  if (!again) return again.error();
  if (again->compared() == 0 || again->right()) return {};
  const auto other = std::ranges::find(again->taps, Verdict::kWrong, &CaseTap::verdict);
  return internal_error(
      fmt::format("{}: the case does not give again what the call gave: {}", kept.op.name,
                  other != again->taps.end() ? fmt::format("tap {} {}", other->tap, other->note)
                                             : again->trespasses.front()));
}

}  // namespace attnscope
