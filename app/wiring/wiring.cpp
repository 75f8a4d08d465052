#include "app/wiring/wiring.h"

#include "app/wiring/model_witness.h"
#include "app/wiring/plugins.h"
#include "engine/mutants/given_mutants.h"
#include "engine/mutants/host_mutants.h"
#include "engine/mutants/part_mutants.h"
#include "engine/mutants/rank_mutants.h"
#include "engine/session/step/frame.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cuda/cuda_lane.h"
#include "kernels/mutants/mutants.h"
#include "reference/register.h"
#include "reference/torch_module.h"

namespace attnscope {
LaneRegistry all_lanes() {
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(*cuda::lane());
  for (const Lane& lane : mutants::lanes()) registry.add(lane);
  for (const mutants::RareMutant& mutant : mutants::rare()) registry.add(mutant.lane);
  for (const Lane& lane : mutants::helpers()) registry.add(lane);
  for (const Lane& lane : host_mutants()) registry.add(lane);
  add_given_mutants(registry);
  add_rank_mutants(registry);
  add_part_mutants(registry);
  registry.add(*reference::exact_lane());
  registry.add(*reference::sim_lane());
  for (const auto& plugin : plugins()) registry.add(plugin->lane());
  registry.set_witness(make_model_witness);
  registry.set_references_beside(reference::beside_host());
  if (reference::beside_host()) {
    use_host_memory({reference::allocate_host_memory, reference::release_host_memory});
  }
  return registry;
}

}  // namespace attnscope
