#include "app/wiring/case_lane.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "engine/io/nearest.h"
#include "kernels/params/op_table.h"

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
  for (const Lane& lane : registry.all()) {
    out.push_back({lane.name, lane.description, lane.ops[op.id]});
  }
  return out;
}

// These want the scheduler behind the call, which a case has not.
bool needs_engine(const CaseOp& op, const std::string& lane) {
  return as_op_has(op.id, AS_BY_ENGINE) != 0 && !lane.starts_with("ref.");
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
