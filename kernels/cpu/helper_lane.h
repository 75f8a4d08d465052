// The helper ops on the host.
#pragma once

#include "kernels/params/helper_table.h"

namespace attnscope::cpu {

const as_helper_lane* helper_lane();

}  // namespace attnscope::cpu
