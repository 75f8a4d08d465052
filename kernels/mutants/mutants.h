// Planted bugs: lanes mutant:NAME that replace one op of the CPU lane with a wrong one, so that the
// tool can be shown to name the right op. Everything else in such a lane is the CPU lane's.
#pragma once

#include <vector>

#include "kernels/params/lane.h"

namespace attnscope::mutants {

// All mutants; ops they do not replace are NULL.
const std::vector<as_lane>& lanes();

}  // namespace attnscope::mutants
