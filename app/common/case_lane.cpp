#include "app/common/case_lane.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>

#include "engine/config/nearest.h"
#include "kernels/cpu/helper_lane.h"
#include "kernels/cuda/helper_lane.h"
#include "reference/helper_lane.h"

namespace attnscope {
namespace {

struct Named {
  std::string name;
  std::string description;
  as_op_fn function;
};

// Every lane there is, with its function for this op.
std::vector<Named> implementations(const LaneRegistry& registry, const CaseOp& op) {
  std::vector<Named> out;
  if (!op.helper) {
    for (const as_lane& lane : registry.all()) {
      out.push_back({lane.name, lane.description, lane.ops[op.id]});
    }
    return out;
  }
  const std::array<const as_helper_lane*, 3> lanes = {cpu::helper_lane(), cuda::helper_lane(),
                                                      reference::helper_lane()};
  const std::array<const char*, 3> names = {"cpu", "cuda", "ref.sim"};
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    out.push_back({names[i], lanes[i]->description, lanes[i]->ops[op.id - AS_HELPER_FIRST]});
  }
  return out;
}

// These want the scheduler behind the call, which a case has not.
bool needs_engine(const CaseOp& op, const std::string& lane) {
  return (op.id == AS_OP_SCHEDULE || op.id == AS_OP_BLOCK_TABLES) && !lane.starts_with("ref.");
}

}  // namespace

Result<CaseLane> find_case_lane(const LaneRegistry& registry, const std::string& name,
                                const CaseOp& op) {
  std::vector<std::string> having;
  const Named* found = nullptr;
  const std::vector<Named> all = implementations(registry, op);
  for (const Named& lane : all) {
    if (lane.name == name) found = &lane;
    if (lane.function != nullptr && !needs_engine(op, lane.name)) having.push_back(lane.name);
  }
  const std::string hint = fmt::format("lanes with it: {}", fmt::join(having, ", "));
  if (found == nullptr) {
    const auto near = nearest_names(name, having, 3);
    return usage_error(
        fmt::format("--lane {}: unknown lane", name),
        near.empty() ? hint : fmt::format("did you mean {}? {}", fmt::join(near, ", "), hint));
  }
  if (needs_engine(op, name)) {
    return usage_error(
        fmt::format("--lane {}: {} is carried out by the engine's scheduler, which a case has not",
                    name, op.name),
        hint);
  }
  if (found->function == nullptr) {
    if (name == "cuda") {
      return Error{AS_NO_ENVIRONMENT, fmt::format("--lane cuda: {}", found->description),
                   "use --lane cpu"};
    }
    return usage_error(fmt::format("--lane {}: has no op {}", name, op.name), hint);
  }
  return CaseLane{name, found->function, name.starts_with("ref.")};
}

CaseRunOptions case_options(const LaneRegistry& registry, const CaseOp& op,
                            const Tolerances& tolerances, const as_threads* threads) {
  CaseRunOptions options;
  options.tolerances = &tolerances;
  options.threads = threads;
  for (const Named& lane : implementations(registry, op)) {
    if (lane.name == "cpu" && !needs_engine(op, "cpu")) options.guard = lane.function;
    if (lane.name == "ref.sim") options.sim = lane.function;
  }
  return options;
}

}  // namespace attnscope
