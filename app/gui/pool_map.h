// Every block of a pool as one cell of a picture: colour = owner, shade = group. Fast at 100,000:
// the picture is made again when the blocks change, what lies on top is drawn where it is visible,
// and the block under the mouse follows by arithmetic.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <vector>

#include "app/gui/cell_texture.h"
#include "engine/cache/block_owner.h"

namespace attnscope::gui {

// An owner's colour for one of its groups: the first as it is, the others nearer to the surface.
ImU32 group_colour(std::int32_t request, int group, int groups);

struct PoolMapData {
  const std::vector<BlockOwner>* owners = nullptr;  // by block id; 0 = null block
  const std::vector<std::int32_t>* fresh = nullptr;
  const std::vector<std::int32_t>* freed = nullptr;
  const std::vector<std::int32_t>* free_list = nullptr;  // front first
  // By block: its rows lie in host memory; null or empty = none's do.
  const std::vector<bool>* on_host = nullptr;
  int groups = 1;
  bool free_order = false;     // free cells show when their turn comes: brighter = sooner
  std::int32_t emphasis = -1;  // request whose blocks stand out; -1 = all alike
  std::int32_t selected = -1;  // block
  std::uint64_t version = 0;   // of the blocks: the picture is made again when it changes
};

struct PoolMapEvents {
  std::int32_t hovered = -1;  // block under the mouse
  bool clicked = false, double_clicked = false;
};

class PoolMap {
 public:
  // Draws into `size`. Wheel zooms, drag pans, double click on no block shows all again.
  PoolMapEvents draw(const char* id, const PoolMapData& data, ImVec2 size);

 private:
  struct Look {  // what the picture was made for
    std::uint64_t version = ~std::uint64_t{0};
    int columns = 0;
    std::int32_t emphasis = -1;
    bool free_order = false;
    ImU32 panel = 0, owner = 0;  // of the theme
    friend bool operator==(const Look&, const Look&) = default;
  };
  struct Frame {
    ImVec2 at, size;
    float side = 1;  // of a cell
    int columns = 1, rows = 1;
    int first_column = 0, last_column = 0, first_row = 0, last_row = 0;  // visible
  };

  void refresh(const PoolMapData& data, const Look& look, int rows);
  void navigate(Frame& frame);
  void draw_cells(ImDrawList* list, const PoolMapData& data, const Frame& frame) const;
  void draw_marks(ImDrawList* list, const PoolMapData& data, const Frame& frame) const;
  bool cell(const Frame& frame, std::int32_t block, ImVec2& min, ImVec2& max) const;

  CellTexture picture_;
  Look look_;
  std::vector<std::int32_t> order_;  // place in the free list by block, from 1; 0 = not free
  float zoom_ = 1;
  ImVec2 origin_{0, 0};  // first visible column and row
  bool panned_ = false;
};

}  // namespace attnscope::gui
