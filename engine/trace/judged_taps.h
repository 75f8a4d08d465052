// Ends of names of taps that stand for what no op puts out and is judged all the same: a decision
// of the scheduler or the block manager, and what must hold of every step.
#pragma once

#include <string>
#include <string_view>

#include "engine/trace/tap_result.h"

namespace attnscope {

inline constexpr const char* kDecisionTap = ".decision";
inline constexpr const char* kInvariantTap = ".invariant";

inline bool is_judged(const TapResult& result) {
  return result.tap.ends_with(kDecisionTap) || result.tap.ends_with(kInvariantTap);
}

// A wrong one. elements: how many were judged at this place; beyond: how many of them do not hold.
TapResult judged_wrong(as_op_id op, std::string tap, std::int64_t elements, std::int64_t beyond,
                       std::string note);

}  // namespace attnscope
