#include "app/gui/pool_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/gui/theme.h"
#include "app/gui/widgets.h"

namespace attnscope::gui {
namespace {

constexpr float kGapFrom = 5;         // cells this large stand apart
constexpr float kTextFrom = 22;       // and this large show their number
constexpr std::size_t kMarks = 4096;  // more marks than this say nothing

ImU32 shade(ImU32 colour, int group) {
  // Groups of one owner differ in lightness: full, then darker by steps.
  const float keep = 1.0f - 0.11f * static_cast<float>(std::clamp(group, 0, 5));
  const auto channel = [&](int shift) {
    return static_cast<ImU32>(static_cast<float>(colour >> shift & 255) * keep) << shift;
  };
  return channel(0) | channel(8) | channel(16) | (colour & IM_COL32_A_MASK);
}

}  // namespace

void PoolMap::rebuild(const PoolMapData& data, int columns, int rows) {
  const auto& owners = *data.owners;
  std::vector<ImU32> pixels(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows),
                            theme().panel);
  const ImU32 free = with_alpha(theme().grid, 0.45f);
  for (std::size_t id = 0; id < owners.size(); ++id) {
    pixels[id] =
        owners[id].request >= 0 ? shade(owner_colour(owners[id].request), owners[id].group) : free;
  }
  picture_.update(columns, rows, pixels);
  order_.assign(owners.size(), -1);
  if (data.free_list != nullptr) {
    for (std::size_t i = 0; i < data.free_list->size(); ++i) {
      const auto block = static_cast<std::size_t>((*data.free_list)[i]);
      if (block < order_.size()) order_[block] = static_cast<std::int32_t>(i + 1);
    }
  }
}

std::int32_t PoolMap::draw(const char* id, const PoolMapData& data, ImVec2 size,
                           std::int32_t selected, bool& clicked) {
  clicked = false;
  const auto count = static_cast<int>(data.owners->size());
  if (count == 0 || size.x < 8 || size.y < 8) return -1;
  // The largest square cells that fit.
  float side = std::floor(std::sqrt(size.x * size.y / static_cast<float>(count)));
  const auto fits = [&](float s) {
    const int columns = std::max(1, static_cast<int>(size.x / s));
    return static_cast<float>((count + columns - 1) / columns) * s <= size.y;
  };
  while (side > 1 && !fits(side)) side -= 1;
  side = std::clamp(side, 1.0f, px(34));
  const int columns = std::clamp(static_cast<int>(size.x / side), 1, 4096);
  const int rows = std::min(4096, (count + columns - 1) / columns);
  const std::uint64_t look = theme().panel;
  if (version_ != data.version || columns_ != columns || theme_ != look) {
    rebuild(data, columns, rows);
    version_ = data.version;
    columns_ = columns;
    theme_ = look;
  }
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 extent(side * static_cast<float>(columns), side * static_cast<float>(rows));
  ImGui::InvisibleButton(id, extent);
  ImDrawList* list = ImGui::GetWindowDrawList();
  picture_.draw(list, at, ImVec2(at.x + extent.x, at.y + extent.y), 0, 0,
                static_cast<float>(columns), static_cast<float>(rows));
  const auto cell = [&](std::int32_t block, ImVec2& min, ImVec2& max) {
    min = ImVec2(at.x + side * static_cast<float>(block % columns),
                 at.y + side * static_cast<float>(block / columns));
    max = ImVec2(min.x + side, min.y + side);
  };
  ImVec2 min, max;
  if (side >= kGapFrom) {  // grid lines keep neighbours apart
    for (int c = 0; c <= columns; ++c) {
      const float x = at.x + side * static_cast<float>(c);
      list->AddLine(ImVec2(x, at.y), ImVec2(x, at.y + extent.y), theme().panel);
    }
    for (int r = 0; r <= rows; ++r) {
      const float y = at.y + side * static_cast<float>(r);
      list->AddLine(ImVec2(at.x, y), ImVec2(at.x + extent.x, y), theme().panel);
    }
  }
  cell(0, min, max);
  draw_hatch(list, min, max);
  const auto mark = [&](const std::vector<std::int32_t>* blocks, ImU32 colour) {
    if (blocks == nullptr || blocks->size() > kMarks || side < 3) return;
    for (const std::int32_t block : *blocks) {
      cell(block, min, max);
      const float inset = std::max(1.0f, side * 0.16f);
      list->AddRect(ImVec2(min.x + inset, min.y + inset), ImVec2(max.x - inset, max.y - inset),
                    colour, 0, std::max(1.0f, side * 0.09f));
    }
  };
  mark(data.fresh, theme().text);
  mark(data.freed, theme().text_faint);
  if (side >= px(kTextFrom) && count <= 4096) {
    ImGui::PushFont(numbers(), ImGui::GetStyle().FontSizeBase * 0.72f);
    for (std::int32_t block = 1; block < count; ++block) {
      const BlockOwner& owner = (*data.owners)[static_cast<std::size_t>(block)];
      const std::int32_t place = order_[static_cast<std::size_t>(block)];
      if (owner.request < 0 && place < 0) continue;
      cell(block, min, max);
      const bool used = owner.request >= 0;
      const ImU32 colour =
          used ? text_on(shade(owner_colour(owner.request), owner.group)) : theme().text_faint;
      draw_cell_text(list, min, max, colour, fmt::format("{}", used ? block : place));
    }
    ImGui::PopFont();
  }
  if (selected >= 0 && selected < count) {
    cell(selected, min, max);
    draw_selected(list, min, max);
  }
  if (!ImGui::IsItemHovered()) return -1;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const int x = static_cast<int>((mouse.x - at.x) / side);
  const int y = static_cast<int>((mouse.y - at.y) / side);
  const int block = y * columns + x;
  if (x < 0 || x >= columns || y < 0 || block >= count) return -1;
  cell(block, min, max);
  draw_hovered(list, min, max);
  clicked = ImGui::IsItemClicked();
  return block;
}

}  // namespace attnscope::gui
