// Every block of a pool as one cell of a picture: colour = owner, shade = group. Fast at 100,000.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <vector>

#include "app/gui/cell_texture.h"
#include "engine/cache/block_manager.h"

namespace attnscope::gui {

struct PoolMapData {
  const std::vector<BlockOwner>* owners = nullptr;  // by block id; 0 = null block
  const std::vector<std::int32_t>* fresh = nullptr;
  const std::vector<std::int32_t>* freed = nullptr;
  const std::vector<std::int32_t>* free_list = nullptr;  // numbers in free cells; may be null
  std::uint64_t version = 0;  // the picture is made again when it changes
};

class PoolMap {
 public:
  // Draws into `size`. Returns the block under the mouse, -1 = none; clicked: it was clicked.
  std::int32_t draw(const char* id, const PoolMapData& data, ImVec2 size, std::int32_t selected,
                    bool& clicked);

 private:
  void rebuild(const PoolMapData& data, int columns, int rows);

  CellTexture picture_;
  std::vector<std::int32_t> order_;  // place in the free list by block, -1 = none
  std::uint64_t version_ = ~std::uint64_t{0};
  std::uint64_t theme_ = 0;
  int columns_ = 0;
};

}  // namespace attnscope::gui
