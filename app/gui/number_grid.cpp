#include "app/gui/number_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"

namespace attnscope::gui {
namespace {

void text_right(ImDrawList* list, float right, float y, ImU32 colour, const std::string& text) {
  list->AddText({right - ImGui::CalcTextSize(text.c_str()).x, y}, colour, text.c_str());
}

}  // namespace

HeatMapEvents NumberGrid::draw(const char* id, const HeatMapData& data, ImVec2 size,
                               std::int64_t selected_row, std::int64_t selected_column) {
  HeatMapEvents events;
  if (data.rows <= 0 || data.columns <= 0) {
    ImGui::Dummy(size);
    return events;
  }
  ImGui::PushFont(numbers(), 0);
  const Theme& t = theme();
  const float line = ImGui::GetTextLineHeight() + px(4);
  const float wide = ImGui::CalcTextSize("-1.234e-05").x + px(10);
  float left = 0;
  for (const std::int64_t r : {std::int64_t{0}, data.rows - 1}) {
    left = std::max(left, ImGui::CalcTextSize(index_label(data.row_name, r).c_str()).x);
  }
  left = std::max(left, ImGui::CalcTextSize(data.row_axis.c_str()).x) + px(10);
  if (!ImGui::BeginChild(id, size, ImGuiChildFlags_None, ImGuiWindowFlags_HorizontalScrollbar)) {
    ImGui::EndChild();
    ImGui::PopFont();
    return events;
  }
  const ImVec2 view = ImGui::GetWindowPos();
  const ImVec2 origin = ImGui::GetCursorScreenPos();  // moves with the scrolling
  const bool moved = selected_row != shown_row_ || selected_column != shown_column_;
  if (moved && selected_row >= 0 && selected_column >= 0) {
    const float x = static_cast<float>(selected_column) * wide;
    const float y = static_cast<float>(selected_row) * line;
    const ImVec2 scroll{ImGui::GetScrollX(), ImGui::GetScrollY()};
    const ImVec2 room{ImGui::GetWindowWidth() - left - wide, ImGui::GetWindowHeight() - 2 * line};
    if (x < scroll.x || x > scroll.x + room.x) ImGui::SetScrollX(std::max(0.0f, x - room.x / 2));
    if (y < scroll.y || y > scroll.y + room.y) ImGui::SetScrollY(std::max(0.0f, y - room.y / 2));
  }
  shown_row_ = selected_row;
  shown_column_ = selected_column;

  const ImVec2 min{view.x + left, view.y + line};  // of the cells on screen
  const ImVec2 max{view.x + ImGui::GetWindowWidth(), view.y + ImGui::GetWindowHeight()};
  const ImVec2 start{origin.x + left, origin.y + line};  // cell 0, 0
  const auto first_row = static_cast<std::int64_t>(std::max(0.0f, (min.y - start.y) / line));
  const auto first_column = static_cast<std::int64_t>(std::max(0.0f, (min.x - start.x) / wide));
  const auto end_row = std::min<std::int64_t>(
      data.rows, static_cast<std::int64_t>(std::ceil((max.y - start.y) / line)));
  const auto end_column = std::min<std::int64_t>(
      data.columns, static_cast<std::int64_t>(std::ceil((max.x - start.x) / wide)));
  ImDrawList* list = ImGui::GetWindowDrawList();
  const auto corner = [&](std::int64_t r, std::int64_t c) {
    return ImVec2{start.x + static_cast<float>(c) * wide, start.y + static_cast<float>(r) * line};
  };

  list->PushClipRect(min, max, true);
  for (std::int64_t r = first_row; r < end_row; ++r) {
    if (r % 2 == 1) {
      const float y = corner(r, 0).y;
      list->AddRectFilled({min.x, y}, {max.x, y + line}, with_alpha(t.text, 0.03f));
    }
    for (std::int64_t c = first_column; c < end_column; ++c) {
      const ImVec2 a = corner(r, c), b{a.x + wide, a.y + line};
      if (data.absent && data.absent(r, c)) {
        draw_hatch(list, {a.x + px(6), a.y + px(3)}, {b.x, b.y - px(3)});
        continue;
      }
      const double value = data.value(r, c);
      const ImU32 colour = std::isnan(value)   ? t.nan_cell
                           : std::isinf(value) ? t.bad
                           : value == 0        ? t.text_faint
                                               : t.text;
      text_right(list, b.x - px(4), a.y + px(2), colour, format_number(value));
    }
  }
  if (selected_row >= first_row && selected_row < end_row && selected_column >= first_column &&
      selected_column < end_column) {
    const ImVec2 a = corner(selected_row, selected_column);
    draw_selected(list, a, {a.x + wide, a.y + line});
  }
  const ImVec2 mouse = ImGui::GetMousePos();
  if (ImGui::IsWindowHovered() && mouse.x >= min.x && mouse.y >= min.y) {
    events.row = static_cast<std::int64_t>((mouse.y - start.y) / line);
    events.column = static_cast<std::int64_t>((mouse.x - start.x) / wide);
    events.hovered = events.row >= 0 && events.row < data.rows && events.column >= 0 &&
                     events.column < data.columns;
    if (events.hovered) {
      const ImVec2 a = corner(events.row, events.column);
      draw_hovered(list, a, {a.x + wide, a.y + line});
      events.clicked = ImGui::IsMouseClicked(ImGuiMouseButton_Left) ||
                       ImGui::IsMouseClicked(ImGuiMouseButton_Right);
    }
  }
  list->PopClipRect();

  // Names stay in sight.
  list->PushClipRect({view.x, min.y}, {min.x, max.y}, true);
  for (std::int64_t r = first_row; r < end_row; ++r) {
    text_right(list, min.x - px(6), corner(r, 0).y + px(2),
               r == selected_row ? t.accent : t.text_dim, index_label(data.row_name, r));
  }
  list->PopClipRect();
  list->PushClipRect({min.x, view.y}, {max.x, min.y}, true);
  for (std::int64_t c = first_column; c < end_column; ++c) {
    text_right(list, corner(0, c).x + wide - px(4), view.y + px(2),
               c == selected_column ? t.accent : t.text_dim, index_label(data.column_name, c));
  }
  list->PopClipRect();
  list->AddText({view.x + px(2), view.y + px(2)}, t.text_faint, data.row_axis.c_str());
  list->AddLine({view.x, min.y}, {max.x, min.y}, t.grid);
  list->AddLine({min.x, view.y}, {min.x, max.y}, t.grid);
  ImGui::Dummy(
      {left + wide * static_cast<float>(data.columns), line * static_cast<float>(data.rows + 1)});
  ImGui::EndChild();
  ImGui::PopFont();
  if (events.hovered) tooltip(cell_text(data, events.row, events.column));
  return events;
}

}  // namespace attnscope::gui
