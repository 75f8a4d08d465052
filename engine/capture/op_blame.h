// Who is at fault where an op's outputs differ beyond their tolerance between two captures.
#pragma once

#include <string>

#include "engine/capture/capture_diff.h"

namespace attnscope {

// Sets verdict and why. Outputs of `diff` are beyond their tolerance, or differ by an amount that
// was not kept; its inputs are judged. setup: in what the two were set up otherwise, else empty.
void blame_op(const OwnOutput& a, const OwnOutput& b, const std::string& setup, OpDiff& diff);

// Of two captures that differ without a fault.
inline constexpr const char* kBlameless =
    "No op is at fault: every output that differs beyond its tolerance is what its inputs give.";

// That nobody is at fault, and why then; empty where somebody is or may be.
std::string blameless_text(const CaptureDiff& diff);
// How many ops could not be compared or judged, and what to record; empty where all were.
std::string open_text(const CaptureDiff& diff);

// What an op tells of rows that nobody kept, which it read. It has an output beyond its tolerance.
std::string reader_text(const OpDiff& reader);

// The sentence of the first op that differs.
std::string first_difference(const OpDiff& diff);

}  // namespace attnscope
