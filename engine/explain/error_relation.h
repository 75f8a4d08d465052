// How wrong values follow from the right ones (error_pattern.h): by a number, from another row,
// from other dims of the row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/explain/error_pattern.h"

namespace attnscope {

// Values that are not finite, one value everywhere, times or plus one number, a number of each row.
std::vector<ErrorFinding> error_numbers(const WrongElements& wrong);

// Slots at the right rows of other blocks.
std::optional<ErrorFinding> other_blocks(const WrongElements& wrong, const PatternContext& context);

// Whole rows (all axes but the last) that are right elsewhere.
std::optional<ErrorFinding> moved_rows(const WrongElements& wrong,
                                       const std::vector<std::string>& axes);

// Dims of a row in another order.
std::optional<ErrorFinding> moved_dims(const WrongElements& wrong, const PatternContext& context);

}  // namespace attnscope
