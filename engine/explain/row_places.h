// Where the wrong bytes of cache rows lie: in which tokens' rows, at which rows of their pages, and
// in what part of a row.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/explain/error_pattern.h"
#include "kernels/params/row_format.h"

namespace attnscope {

// wrong: [tokens, bytes of a row]. row: layout of one row. slots: of each token.
ErrorFinding row_places(const WrongElements& wrong, const as_row_layout& row,
                        std::span<const std::int64_t> slots, std::int64_t rows_per_block,
                        const PatternContext& context);

}  // namespace attnscope
