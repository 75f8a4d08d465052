#include "kernels/mutants/mutants.h"

#include "kernels/cpu/cpu_lane.h"
#include "kernels/mutants/bugs.h"

namespace attnscope::mutants {

std::int32_t run_cpu(as_op_id op, const void* params, const as_call* call, as_error* error) {
  return cpu::lane()->ops[op](params, call, error);
}

const std::vector<as_lane>& lanes() {
  static const std::vector<as_lane> kLanes = [] {
    std::vector<as_lane> lanes;
    for (const auto& bugs : {list_bugs(), dense_bugs(), row_bugs(), compressor_bugs(),
                             indexer_bugs(), attention_bugs()}) {
      for (const Bug& bug : bugs) {
        as_lane lane{};
        lane.struct_size = sizeof(as_lane);
        lane.version = AS_LANE_VERSION;
        lane.name = bug.name;
        lane.description = bug.description;
        lane.ops[bug.op] = bug.function;
        lanes.push_back(lane);
      }
    }
    return lanes;
  }();
  return kLanes;
}

}  // namespace attnscope::mutants
