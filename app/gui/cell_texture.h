// A picture with one pixel a cell, drawn with hard edges at any zoom: heat maps and pool maps.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace attnscope::gui {

class CellTexture {
 public:
  CellTexture();
  ~CellTexture();
  CellTexture(CellTexture&&) noexcept;
  CellTexture& operator=(CellTexture&&) noexcept;

  // Replaces the picture; pixels are ImU32 colours, row by row. Sizes up to 4096 x 4096 (a larger
  // one must be reduced by the caller).
  void update(int width, int height, const std::vector<ImU32>& pixels);
  bool empty() const;
  int width() const;
  int height() const;
  // Draws cells [x0,x1) x [y0,y1) into a rectangle.
  void draw(ImDrawList* list, ImVec2 min, ImVec2 max, float x0, float y0, float x1, float y1) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Frees pictures that are no longer shown: once a frame, and (all) before the ImGui context ends,
// after the renderer has ended.
void collect_textures(bool all);

}  // namespace attnscope::gui
