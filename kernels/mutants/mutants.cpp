#include "kernels/mutants/mutants.h"

#include "kernels/cpu/cpu_lane.h"
#include "kernels/mutants/bugs.h"

namespace attnscope::mutants {
namespace {

as_lane make_lane(const char* name, const char* description, as_op_id op, as_op_fn function) {
  as_lane lane{};
  lane.struct_size = sizeof(as_lane);
  lane.version = AS_LANE_VERSION;
  lane.name = name;
  lane.description = description;
  lane.ops[op] = function;
  return lane;
}

}  // namespace

std::int32_t run_cpu(as_op_id op, const void* params, const as_call* call, as_error* error) {
  return cpu::lane()->ops[op](params, call, error);
}

const std::vector<as_lane>& lanes() {
  static const std::vector<as_lane> kLanes = {
      make_lane("mutant:window_off_by_one",
                "The sliding window starts one token late, so the oldest token is lost.",
                AS_OP_SWA_INDEX, window_off_by_one),
      make_lane("mutant:topk_one_short", "The last selected entry of every token is left out.",
                AS_OP_INDEXER_TOPK, topk_one_short),
      make_lane("mutant:scale_rounded_down",
                "The FP8 scale of a latent row is rounded down, so large values saturate.",
                AS_OP_Q_ROPE_KV_INSERT, scale_rounded_down),
      make_lane("mutant:relu_missing",
                "Index heads with a negative product count in the score of an entry.",
                AS_OP_INDEXER_LOGITS, relu_missing),
      make_lane("mutant:sink_scaled", "The sink is multiplied by the softmax scale.",
                AS_OP_SPARSE_ATTENTION, sink_scaled),
      make_lane("mutant:lse_with_sink", "The LSE includes the sink.", AS_OP_SPARSE_ATTENTION,
                lse_with_sink),
      make_lane("mutant:overlap_half_lost",
                "A C4A entry pools its own four rows only and loses those of the window before.",
                AS_OP_COMPRESS_INSERT, overlap_half_lost),
      make_lane("mutant:entry_rope_position",
                "A compressed entry is rotated at its last token instead of its first.",
                AS_OP_COMPRESS_INSERT, entry_rope_position),
  };
  return kLanes;
}

}  // namespace attnscope::mutants
