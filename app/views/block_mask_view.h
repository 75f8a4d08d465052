// The block mask of a request in a layer of dense attention: which tiles of queries and keys its
// mask hides, shows, or has to be asked about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"
#include "kernels/params/mask_code.h"

namespace attnscope {

struct BlockMaskView {
  std::string why_empty;                // empty = there are tiles
  std::string sentence;                 // what is drawn, with counts
  std::int64_t blocks = 0, across = 0;  // of queries, of keys
  std::vector<as_mask_tile> tiles;      // [blocks,across]
  std::int64_t own_block = -1;          // of the token
};

// What a running layer of dense attention lets queries see, as an expression of mask_expression.h.
std::string layer_mask(const ModelConfig& config, int index);
// q_idx of its first query, for MaskedSequence.
std::optional<std::int64_t> place_of_first(const ModelConfig& config, int index);

// layer: published number; a token row of the step. head: of a mask that asks for it, -1 = the
// first.
BlockMaskView block_mask_view(const SessionInfo& info, const StepTrace& step, int layer,
                              std::int64_t token_row, int head);

}  // namespace attnscope
