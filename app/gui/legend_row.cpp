#include "app/gui/legend_row.h"

#include <algorithm>
#include <cmath>

#include "app/gui/widgets.h"

namespace attnscope::gui {

void draw_mark(ImDrawList* list, LegendMark mark, ImVec2 min, ImVec2 max) {
  const Theme& t = theme();
  const float side = std::min(max.x - min.x, max.y - min.y);
  const float line = std::max(1.0f, std::round(side * 0.08f));
  const float middle = (min.x + max.x) / 2, half = std::max(2.0f, std::round(side * 0.22f));
  switch (mark) {
    case LegendMark::kFresh:
      list->AddRect({min.x + 1, min.y + 1}, {max.x - 1, max.y - 1}, t.text, 0, line);
      break;
    case LegendMark::kFreed: {
      const float inset = std::round(side * 0.28f);
      list->AddLine({min.x + inset, min.y + inset}, {max.x - inset, max.y - inset}, t.text_dim,
                    line);
      list->AddLine({min.x + inset, max.y - inset}, {max.x - inset, min.y + inset}, t.text_dim,
                    line);
      break;
    }
    case LegendMark::kHost: {  // a bar at the foot
      const float tall = std::max(1.0f, std::round(side * 0.16f));
      list->AddRectFilled({min.x + 1, max.y - 1 - tall}, {max.x - 1, max.y - 1}, t.text);
      break;
    }
    case LegendMark::kSlot:
    case LegendMark::kPicked: {
      const ImU32 colour = mark == LegendMark::kSlot ? t.text : t.accent;
      list->AddTriangleFilled({middle, max.y - 2 * half}, {middle - half, max.y},
                              {middle + half, max.y}, colour);
      list->AddTriangle({middle, max.y - 2 * half}, {middle - half, max.y}, {middle + half, max.y},
                        t.surface);
      break;
    }
  }
}

void LegendRow::place(const std::string& text) {
  const float wanted = ImGui::CalcTextSize(text.c_str()).x + ImGui::GetFontSize() + px(8);
  if (!first_) {
    ImGui::SameLine(0, px(12));
    if (ImGui::GetContentRegionAvail().x < wanted) ImGui::NewLine();
  }
  first_ = false;
}

bool LegendRow::swatch(ImU32 colour, const std::string& text) {
  place(text);
  legend(colour, text.c_str());
  return ImGui::IsItemHovered();
}

bool LegendRow::hatched(const std::string& text) {
  place(text);
  legend(theme().hatch, text.c_str(), true);
  return ImGui::IsItemHovered();
}

bool LegendRow::outlined(const std::string& text) {
  place(text);
  legend(theme().grid, text.c_str(), false, true);
  return ImGui::IsItemHovered();
}

bool LegendRow::mark(LegendMark mark, const std::string& text) {
  place(text);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float side = std::round(ImGui::GetFontSize() * 0.86f);
  const float top = std::round(at.y + (ImGui::GetTextLineHeight() - side) / 2);
  draw_mark(ImGui::GetWindowDrawList(), mark, {at.x, top}, {at.x + side, top + side});
  legend(0, text.c_str());
  return ImGui::IsItemHovered();
}

}  // namespace attnscope::gui
