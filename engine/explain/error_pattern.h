// What the wrong elements of an output have in common: where they lie along each axis, and how they
// follow from the right ones. It states what is seen; causes are hypotheses.h's.
//
//   for (const ErrorFinding& f : error_pattern(wrong, {"T", "H", "D"}, known)) say(f.sentence);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/explain/wrong_elements.h"

namespace attnscope {

struct ErrorFinding {
  // "place", "not_finite", "constant", "ratio", "difference", "row_ratio", "moved_row",
  // "moved_dim", "other_block"; of an output as a whole "whole"
  std::string kind;
  std::string sentence;
  double share = 0;  // of the wrong elements that it holds for
};

// What else is known of the call; empty and 0 where it is not.
struct PatternContext {
  std::vector<std::int64_t> positions;    // of each token
  std::vector<std::int32_t> requests;     // row of each token's request
  std::int64_t rope_dims = 0;             // that the op, or the one before it, turns
  std::vector<std::int64_t> page_rows;    // rows of a page, of each cache
  std::vector<std::int64_t> block_sizes;  // values that share one scale
  std::int64_t slots_of = 0;              // rows of a block of the slots that are listed
};

// The most telling first: relations to the right values, then places. Empty when nothing is wrong.
std::vector<ErrorFinding> error_pattern(const WrongElements& wrong,
                                        const std::vector<std::string>& axes,
                                        const PatternContext& context);

}  // namespace attnscope
