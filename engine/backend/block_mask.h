// The tiles of a mask, as FlexAttention's BlockMask: which of them hide all of their keys, which
// show all, and which have to be asked key by key. Every element of a tile is looked at once.
//
//   BlockMask tiles(mask, {{.queries = 300, .keys = 300}}, heads);
//   p.mask_code = mask.tensor(), p.tiles = tiles.tensor();
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/model/mask_expression.h"

namespace attnscope {

struct MaskedSequence {
  std::int64_t queries = 0, keys = 0;
  // Of the first query; absent: the last query stands beside the last key. Across, where keys are
  // another side's, queries are counted from 0.
  std::optional<std::int64_t> place = {};
};

class BlockMask {
 public:
  // heads: whose masks differ; a mask that asks for no head has one map for all.
  BlockMask(const MaskCode& mask, std::span<const MaskedSequence> sequences, std::int64_t heads);

  struct Counts {
    std::int64_t empty = 0, partial = 0, full = 0;
    std::int64_t seen = 0, elements = 0;  // pairs of query and key, of all maps
    std::int64_t tiles() const { return empty + partial + full; }
  };
  const Counts& counts() const { return counts_; }
  std::int64_t maps() const { return maps_; }
  std::int64_t blocks() const { return blocks_; }  // of queries, of the longest sequence
  std::int64_t across() const { return across_; }  // tiles of keys
  as_mask_tile tile(std::int64_t sequence, std::int64_t map, std::int64_t block,
                    std::int64_t across) const;
  // u8 [sequences,maps,blocks,across], of this block mask while it lives.
  as_tensor tensor() const;
  // A line a block of queries: "." hides all, "+" some, "#" none.
  std::string drawing(std::int64_t sequence, std::int64_t map) const;

 private:
  void look(const MaskCode& mask, const MaskedSequence& sequence, std::int64_t number,
            std::int64_t map);

  std::int64_t maps_ = 1, blocks_ = 0, across_ = 0;
  std::vector<MaskedSequence> sequences_;
  std::vector<std::uint8_t> tiles_;
  Counts counts_;
};

}  // namespace attnscope
