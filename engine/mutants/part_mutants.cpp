#include "engine/mutants/part_mutants.h"

#include "engine/backend/host_ops.h"
#include "kernels/params/mla_params.h"

namespace attnscope {
namespace {

void no_resident_part(as_merge_states_params& merge) {
  merge.a = merge.b;
  merge.lse_a = merge.lse_b;
}

// Rows in the pool are attended to once more with those that have come.
void all_rows_again(const OpParams& whole, OpParams& call) {
  if (whole.op() == AS_OP_SPARSE_MLA_ATTENTION) {
    call.get<as_sparse_mla_attention_params>().indices =
        whole.get<as_sparse_mla_attention_params>().indices;
  } else {
    call.get<as_sparse_attention_params>().extra_indices =
        whole.get<as_sparse_attention_params>().extra_indices;
  }
}

}  // namespace

const std::vector<PartMutant>& part_mutants() {
  static const std::vector<PartMutant> kMutants = {
      {.name = "mutant:merge_without_resident",
       .description = "Attention over missed rows is merged without that over the pool's.",
       .tap = "merge",
       .parts = {.merging = no_resident_part}},
      {.name = "mutant:pool_attended_twice",
       .description = "Attention over missed rows is over those in the pool, too.",
       .tap = "o.missed",
       .parts = {.missed = all_rows_again}},
  };
  return kMutants;
}

void add_part_mutants(LaneRegistry& registry) {
  static const std::vector<BetweenOps> kBetween = [] {
    std::vector<BetweenOps> all;
    for (const PartMutant& mutant : part_mutants()) all.push_back({.parts = &mutant.parts});
    return all;
  }();
  for (std::size_t i = 0; i < kBetween.size(); ++i) {
    Lane lane{};
    lane.name = part_mutants()[i].name;
    lane.description = part_mutants()[i].description;
    lane.ops[AS_OP_SCHEDULE] = host_schedule;
    registry.add(lane, &kBetween[i]);
  }
}

}  // namespace attnscope
