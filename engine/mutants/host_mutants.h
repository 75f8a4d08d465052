// Planted bugs of the ops that the engine carries out itself: lanes mutant:NAME, as those of
// kernels/mutants. The scheduler and the block manager go on in good order; what the op reports to
// the rest of the step is wrong.
#pragma once

#include <vector>

#include "kernels/params/lane_table.h"

namespace attnscope {

const std::vector<Lane>& host_mutants();

}  // namespace attnscope
