// The helper ops as the references see them: float64 inside, one rounding to the output's dtype.
// Caches are logical rows of records; outputs may be F64 (then nothing is rounded, and
// inverse_rope_quantise gives the values that its codes stand for).
#pragma once

#include "kernels/params/lane_table.h"

namespace attnscope::reference {

// Those of ref.sim; the other references have none.
void enter_helpers(Lane* lane);

}  // namespace attnscope::reference
