// inverse_rope_quantise: inverse_rope with codes alone.
#include "kernels/cuda/helper_ops.h"
#include "kernels/cuda/ops.h"

namespace attnscope::cuda {

int inverse_rope_quantise(const as_inverse_rope_quantise_params& p, const Launch& launch) {
  as_inverse_rope_params turn{};
  turn.o = p.o;
  turn.positions = p.positions;
  turn.rope = p.rope;
  turn.codes = p.codes;
  turn.scales = p.scales;
  turn.scale_floor = AS_SCALE_FLOOR_1E4;
  return inverse_rope(turn, launch);
}

}  // namespace attnscope::cuda
