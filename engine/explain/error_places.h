// Where along each axis the wrong elements of an output lie, in words (error_pattern.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/explain/error_pattern.h"

namespace attnscope {

// One sentence over all axes.
ErrorFinding error_places(const WrongElements& wrong, const std::vector<std::string>& axes,
                          const PatternContext& context);

// What tokens share: their request, their row of a page, being the first or last of their request;
// ", all of request row 1", or empty.
std::string tokens_note(const std::vector<std::int64_t>& tokens, std::int64_t extent,
                        const PatternContext& known);

// Sorted places of 0 .. extent - 1 in words: "all 8", "3", "448 to 511", "every 2nd from 1",
// "13 of 64".
std::string places_text(const std::vector<std::int64_t>& places, std::int64_t extent);

}  // namespace attnscope
