// Cells of maps and strips: null, free, selected, hovered, and text inside.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "app/gui/colour.h"
#include "app/gui/widgets.h"

namespace attnscope::gui {
namespace {

// A frame that stays visible on every colour: a line with one of the surface inside it; around the
// cell where it is too small to hold both.
void draw_frame(ImDrawList* list, ImVec2 min, ImVec2 max, ImU32 colour, float thickness) {
  min = {std::floor(min.x), std::floor(min.y)};
  max = {std::ceil(max.x), std::ceil(max.y)};
  thickness = std::max(1.0f, std::round(thickness));
  if (std::min(max.x - min.x, max.y - min.y) < 4 * thickness) {
    list->AddRect({min.x - thickness, min.y - thickness}, {max.x + thickness, max.y + thickness},
                  colour, 0, thickness);
    return;
  }
  list->AddRect(min, max, colour, 0, thickness);
  list->AddRect({min.x + thickness, min.y + thickness}, {max.x - thickness, max.y - thickness},
                with_alpha(theme().surface, 0.75f));
}

// In the space between two lines of a table.
void frame_text(ImDrawList* list, ImVec2 min, ImVec2 max, ImU32 colour) {
  const float line = std::max(1.0f, std::round(px(1)));
  list->AddRect({std::floor(min.x) - px(3), std::floor(min.y) - line},
                {std::ceil(max.x), std::ceil(max.y) + 2 * line}, colour, 0, line);
}

}  // namespace

void draw_hatch(ImDrawList* list, ImVec2 min, ImVec2 max) {
  const Theme& t = theme();
  const float w = max.x - min.x, h = max.y - min.y;
  if (!(w > 0) || !(h > 0)) return;
  const float gap = px(5);
  if (w < gap || h < gap) {  // too small for lines
    list->AddRectFilled(min, max, with_alpha(t.hatch, 0.45f));
    return;
  }
  // Lines x + y = c, at the same c in all cells, so that neighbours join.
  const int first = static_cast<int>(std::ceil((min.x + min.y) / gap));
  const int end = static_cast<int>(std::ceil((max.x + max.y) / gap));
  for (int i = first; i < end; ++i) {
    const float c = gap * static_cast<float>(i);
    const float x0 = std::max(min.x, c - max.y), x1 = std::min(max.x, c - min.y);
    if (x1 - x0 > 0.5f) list->AddLine({x0, c - x0}, {x1, c - x1}, t.hatch);
  }
}

void draw_free(ImDrawList* list, ImVec2 min, ImVec2 max) {
  if (max.x - min.x < 3 || max.y - min.y < 3) return;
  list->AddRect(min, max, theme().border);
}

void draw_selected(ImDrawList* list, ImVec2 min, ImVec2 max) {
  draw_frame(list, min, max, theme().accent, px(2));
}

void draw_hovered(ImDrawList* list, ImVec2 min, ImVec2 max) {
  draw_frame(list, min, max, theme().accent_soft, px(1.5f));
}

void draw_selected_text(ImDrawList* list, ImVec2 min, ImVec2 max) {
  frame_text(list, min, max, theme().accent);
}

void draw_hovered_text(ImDrawList* list, ImVec2 min, ImVec2 max) {
  frame_text(list, min, max, theme().accent_soft);
}

void draw_cell_text(ImDrawList* list, ImVec2 min, ImVec2 max, ImU32 colour, std::string_view text) {
  const ImVec2 size = ImGui::CalcTextSize(text.data(), text.data() + text.size());
  if (size.x + px(2) > max.x - min.x || size.y > max.y - min.y + px(2)) return;
  list->AddText(
      {std::round((min.x + max.x - size.x) / 2), std::round((min.y + max.y - size.y) / 2)}, colour,
      text.data(), text.data() + text.size());
}

ImU32 ink_on(ImU32 background) {
  const Theme& t = theme();
  return contrast(t.text, over(background, t.panel)) >= 3.5f ? t.text : text_on(background);
}

ImU32 text_on(ImU32 background) {
  const ImU32 solid = over(background, theme().panel);
  return contrast(solid, IM_COL32_WHITE) > contrast(solid, IM_COL32_BLACK) ? IM_COL32_WHITE
                                                                           : IM_COL32_BLACK;
}

}  // namespace attnscope::gui
