#include "engine/mutants/rank_mutants.h"

#include "engine/backend/host_ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// The last token of a step goes to the rank behind its own.
void owner_late(RankSlots& slots) {
  for (std::size_t rank = 0; rank < slots.size(); ++rank) {
    std::int64_t& slot = slots[rank].back();
    if (slot < 0) continue;
    slots[(rank + 1) % slots.size()].back() = slot;
    slot = -1;
    return;
  }
}

void sink_everywhere(const OpParams& whole, OpParams& call) {
  if (whole.op() == AS_OP_SPARSE_ATTENTION) {
    call.get<as_sparse_attention_params>().sinks = whole.get<as_sparse_attention_params>().sinks;
  }
  if (whole.op() != AS_OP_PAGED_ATTENTION) return;
  call.get<as_paged_attention_params>().sinks = whole.get<as_paged_attention_params>().sinks;
}

void without_entries(const OpParams&, OpParams& call) {
  if (call.op() != AS_OP_SPARSE_ATTENTION) return;
  call.get<as_sparse_attention_params>().extra_cache.record = AS_RECORD_NONE;
}

void share_twice(std::vector<int>& ranks) { ranks.push_back(ranks.front()); }

void lse_base_2(as_merge_states_params& merge) { merge.base_2 = 1; }

// Sums of values are added up as they are, each relative to a maximum of its own.
void not_rescaled(const as_merge_states_params& merge) {
  const std::int64_t size = merge.out.shape[2];
  for (std::int64_t t = 0; t < merge.out.shape[0]; ++t) {
    for (std::int64_t h = 0; h < merge.out.shape[1]; ++h) {
      const float *a = at<float>(merge.a, t, h), *b = at<float>(merge.b, t, h);
      for (std::int64_t i = 0; i < size; ++i) at<float>(merge.out, t, h)[i] = (a[i] + b[i]) / 2;
    }
  }
}

}  // namespace

const std::vector<RankMutant>& rank_mutants() {
  static const std::vector<RankMutant> kMutants = {
      {.name = "mutant:token_of_next_rank",
       .description = "The last token of a step is kept by the rank behind its owner.",
       .shows = AS_OP_ROPE_KV_INSERT,
       .tap = "slots",
       .ranks = {.dealt = owner_late}},
      {.name = "mutant:sink_on_every_rank",
       .description = "Each rank counts the sinks into its part.",
       .shows = AS_OP_PAGED_ATTENTION,
       .tap = "o",
       .ranks = {.part = sink_everywhere}},
      {.name = "mutant:share_counted_twice",
       .description = "The part of the first rank is merged once more behind the last.",
       .shows = AS_OP_PAGED_ATTENTION,
       .tap = "parts",
       .ranks = {.parts = share_twice}},
      {.name = "mutant:merge_in_base_2",
       .description = "Merges take natural LSEs for logarithms of base 2.",
       .shows = AS_OP_PAGED_ATTENTION,
       .tap = "merge",
       .ranks = {.merging = lse_base_2}},
      {.name = "mutant:merge_without_rescaling",
       .description = "Merges weigh both parts alike, whatever their LSEs are.",
       .shows = AS_OP_PAGED_ATTENTION,
       .tap = "merge",
       .ranks = {.merged = not_rescaled}},
      {.name = "mutant:entries_left_out_of_parts",
       .description = "Ranks attend over their rows of the window alone.",
       .shows = AS_OP_SPARSE_ATTENTION,
       .tap = "lse",
       .ranks = {.part = without_entries}},
  };
  return kMutants;
}

void add_rank_mutants(LaneRegistry& registry) {
  static const std::vector<BetweenOps> kBetween = [] {
    std::vector<BetweenOps> all;
    for (const RankMutant& mutant : rank_mutants()) all.push_back({.ranks = &mutant.ranks});
    return all;
  }();
  for (std::size_t i = 0; i < kBetween.size(); ++i) {
    Lane lane{};
    lane.name = rank_mutants()[i].name;
    lane.description = rank_mutants()[i].description;
    lane.ops[AS_OP_SCHEDULE] = host_schedule;
    registry.add(lane, &kBetween[i]);
  }
}

}  // namespace attnscope
