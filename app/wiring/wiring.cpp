#include "app/wiring/wiring.h"

#include <fmt/format.h>

#include "app/wiring/deepseek_v4/model_witness.h"
#include "app/wiring/plugins.h"
#include "engine/mutants/given_mutants.h"
#include "engine/mutants/host_mutants.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cuda/cuda_lane.h"
#include "kernels/mutants/mutants.h"
#include "reference/register.h"

namespace attnscope {
namespace {

// Of the model's family, where that has one.
Result<std::unique_ptr<SessionWitness>> make_witness(const Scenario& scenario,
                                                     const as_threads* threads) {
  const std::string& family = scenario.model.family;
  if (family == "deepseek_v4") return make_model_witness(scenario, threads);
  return Error{AS_NO_ENVIRONMENT, fmt::format("models of family {} have none", family), {}};
}

}  // namespace

LaneRegistry all_lanes() {
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(*cuda::lane());
  for (const Lane& lane : mutants::lanes()) registry.add(lane);
  for (const mutants::RareMutant& mutant : mutants::rare()) registry.add(mutant.lane);
  for (const Lane& lane : host_mutants()) registry.add(lane);
  add_given_mutants(registry);
  registry.add(*reference::exact_lane());
  registry.add(*reference::sim_lane());
  for (const auto& plugin : plugins()) registry.add(plugin->lane());
  registry.set_witness(make_witness);
  return registry;
}

}  // namespace attnscope
