#include "kernels/mutants/mutants.h"

#include "kernels/cpu/cpu_lane.h"
#include "kernels/mutants/bugs.h"

namespace attnscope::mutants {

namespace {

as_lane lane_of(const Bug& bug) {
  as_lane lane{};
  lane.struct_size = sizeof(as_lane);
  lane.version = AS_LANE_VERSION;
  lane.name = bug.name;
  lane.description = bug.description;
  lane.ops[bug.op] = bug.function;
  return lane;
}

}  // namespace

std::int32_t run_cpu(as_op_id op, const void* params, const as_call* call, as_error* error) {
  return cpu::lane()->ops[op](params, call, error);
}

const std::vector<as_lane>& lanes() {
  static const std::vector<as_lane> kLanes = [] {
    std::vector<as_lane> lanes;
    for (const auto& bugs : {list_bugs(), dense_bugs(), row_bugs(), compressor_bugs(),
                             indexer_bugs(), attention_bugs()}) {
      for (const Bug& bug : bugs) lanes.push_back(lane_of(bug));
    }
    return lanes;
  }();
  return kLanes;
}

const std::vector<RareMutant>& rare() {
  static const std::vector<RareMutant> kRare = [] {
    std::vector<RareMutant> rare;
    for (const RareBug& r : rare_bugs()) {
      rare.push_back({lane_of(r.bug), r.bug.op, r.scenario});
    }
    return rare;
  }();
  return kRare;
}

}  // namespace attnscope::mutants
