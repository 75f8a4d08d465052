// Who is at fault where an op's outputs differ beyond their tolerance between two captures.
#pragma once

#include <string>

#include "engine/capture/capture_diff.h"

namespace attnscope {

// Sets verdict and why. Outputs of `diff` are beyond their tolerance, its inputs are judged.
void blame_op(const OwnOutput& a, const OwnOutput& b, OpDiff& diff);

// Of two captures that differ without a fault.
inline constexpr const char* kBlameless =
    "No op is at fault: every output that differs beyond its tolerance is what its inputs give.";

// The sentence of the first op that differs.
std::string first_difference(const OpDiff& diff);

}  // namespace attnscope
