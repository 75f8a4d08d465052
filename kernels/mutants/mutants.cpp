#include "kernels/mutants/mutants.h"

#include "kernels/cpu/cpu_lane.h"
#include "kernels/mutants/bugs.h"

namespace attnscope::mutants {

namespace {

Lane lane_of(const Bug& bug) {
  Lane lane{};
  lane.name = bug.name;
  lane.description = bug.description;
  lane.ops[bug.op] = bug.function;
  return lane;
}

}  // namespace

std::int32_t run_cpu(as_op_id op, const void* params, const as_call* call, as_error* error) {
  return cpu::lane()->ops[op](params, call, error);
}

const std::vector<Lane>& lanes() {
  static const std::vector<Lane> kLanes = [] {
    std::vector<Lane> lanes;
    for (const auto& bugs : {list_bugs(), dense_bugs(), row_bugs(), compressor_bugs(),
                             indexer_bugs(), attention_bugs(), read_bugs(), position_bugs(),
                             prefill_bugs(), paged_bugs(), alibi_bugs(), varlen_bugs(),
                             chunk_bugs(), cross_bugs(), mask_bugs(), code_bugs(), mla_bugs()}) {
      for (const Bug& bug : bugs) lanes.push_back(lane_of(bug));
    }
    return lanes;
  }();
  return kLanes;
}

const std::vector<Lane>& helpers() {
  static const std::vector<Lane> kHelpers = [] {
    std::vector<Lane> lanes;
    for (const auto& bugs : {batch_bugs(), convert_bugs()}) {
      for (const Bug& bug : bugs) lanes.push_back(lane_of(bug));
    }
    return lanes;
  }();
  return kHelpers;
}

const std::vector<RareMutant>& rare() {
  static const std::vector<RareMutant> kRare = [] {
    std::vector<RareMutant> rare;
    for (const auto& bugs : {rare_bugs(), plan_bugs(), draft_bugs(), form_bugs(), exchange_bugs(),
                             swap_bugs(), wide_bugs()}) {
      for (const RareBug& r : bugs) rare.push_back({lane_of(r.bug), r.bug.op, r.scenario});
    }
    return rare;
  }();
  return kRare;
}

}  // namespace attnscope::mutants
