// inverse_rope_quantise: inverse_rope with codes alone.
#include "kernels/cpu/helper_ops.h"
#include "kernels/cpu/turn_back.h"

namespace attnscope::cpu {

void inverse_rope_quantise(const as_inverse_rope_quantise_params& p, const as_call* call, Check&) {
  as_inverse_rope_params turn{};
  turn.o = p.o;
  turn.positions = p.positions;
  turn.rope = p.rope;
  turn.codes = p.codes;
  turn.scales = p.scales;
  turn.scale_floor = AS_SCALE_FLOOR_1E4;
  turn_back(turn, call);
}

}  // namespace attnscope::cpu
