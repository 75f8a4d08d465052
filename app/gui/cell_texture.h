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
  friend void collect_textures(bool all);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Frees what the renderer has let go of: once a frame, before ImGui::NewFrame(). all: whatever is
// no longer shown, when the renderer has ended. Pictures that are still shown outlive the context.
void collect_textures(bool all);

}  // namespace attnscope::gui
