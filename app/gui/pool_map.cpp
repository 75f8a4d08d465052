#include "app/gui/pool_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "app/gui/colour.h"
#include "app/gui/legend_row.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"

namespace attnscope::gui {
namespace {

constexpr float kLargestCell = 34;  // of a pool that has room; zooming goes on to kZoomedCell
constexpr float kZoomedCell = 72;
constexpr float kGapFrom = 5;             // cells this large stand apart
constexpr float kTextFrom = 20;           // and this large show their number
constexpr int kMostOutlines = 6000;       // more free cells than this are a faint surface
constexpr std::size_t kMostMarks = 4096;  // more marks than this say nothing
constexpr int kWidest = 4096;             // of a picture

}  // namespace

ImU32 group_colour(std::int32_t request, int group, int groups) {
  const ImU32 colour = owner_colour(request);
  if (group <= 0 || groups < 2) return colour;
  // Neighbours go two ways, so that they are told apart: towards the text and towards the panel.
  const float t = static_cast<float>(std::min(group, groups - 1)) / static_cast<float>(groups - 1);
  return group % 2 != 0 ? mix(colour, theme().text, 0.15f + 0.6f * t)
                        : mix(colour, theme().panel, 0.15f + 0.45f * t);
}

void PoolMap::refresh(const PoolMapData& data, const Look& look, int rows) {
  if (look == look_) return;
  look_ = look;
  const auto& owners = *data.owners;
  order_.assign(owners.size(), 0);
  if (data.free_list != nullptr) {
    for (std::size_t i = 0; i < data.free_list->size(); ++i) {
      const auto block = static_cast<std::size_t>((*data.free_list)[i]);
      if (block < order_.size()) order_[block] = static_cast<std::int32_t>(i + 1);
    }
  }
  const Theme& t = theme();
  std::vector<ImU32> pixels(static_cast<std::size_t>(look.columns) * static_cast<std::size_t>(rows),
                            t.panel);
  const ImU32 free = mix(t.panel, t.grid, 0.35f);
  std::array<ImU32, 64> turns{};  // by turn, soonest first
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const float late = static_cast<float>(i) / static_cast<float>(turns.size() - 1);
    turns[i] = mix(t.panel, t.text_faint, 0.08f + 0.8f * (1 - late) * (1 - late));
  }
  const auto turn_of = [&](std::size_t id) {
    const auto turn = static_cast<std::size_t>(std::max(order_[id] - 1, 0));
    return turns[std::min(turn * turns.size() / std::max<std::size_t>(data.free_list->size(), 1),
                          turns.size() - 1)];
  };
  std::map<std::pair<std::int32_t, std::int32_t>, ImU32> colours;  // by request and group
  const auto colour_of = [&](const BlockOwner& owner) {
    const auto [at, fresh] = colours.try_emplace({owner.request, owner.group}, 0);
    if (fresh) {
      at->second = group_colour(owner.request, owner.group, data.groups);
      if (data.emphasis >= 0 && owner.request != data.emphasis) {
        at->second = mix(at->second, t.panel, 0.78f);
      }
    }
    return at->second;
  };
  const bool turns_shown = data.free_order && data.free_list != nullptr;
  for (std::size_t id = 1; id < std::min(owners.size(), pixels.size()); ++id) {
    pixels[id] = owners[id].request >= 0 ? colour_of(owners[id]) : turns_shown ? turn_of(id) : free;
  }
  picture_.update(look.columns, rows, pixels);
}

bool PoolMap::cell(const Frame& f, std::int32_t block, ImVec2& min, ImVec2& max) const {
  const int column = block % f.columns, row = block / f.columns;
  min = {f.at.x + (static_cast<float>(column) - origin_.x) * f.side,
         f.at.y + (static_cast<float>(row) - origin_.y) * f.side};
  max = {min.x + f.side, min.y + f.side};
  return column >= f.first_column && column < f.last_column && row >= f.first_row &&
         row < f.last_row;
}

// Wheel and drag, with the cell under the mouse staying where it is.
void PoolMap::navigate(Frame& f) {
  const ImGuiIO& io = ImGui::GetIO();
  const float fit = f.side / zoom_;
  const ImVec2 mouse = ImGui::GetMousePos();
  if (ImGui::IsItemHovered() && io.MouseWheel != 0) {
    const ImVec2 under = {origin_.x + (mouse.x - f.at.x) / f.side,
                          origin_.y + (mouse.y - f.at.y) / f.side};
    zoom_ = std::clamp(zoom_ * std::pow(1.25f, io.MouseWheel), 1.0f,
                       std::max(1.0f, px(kZoomedCell) / fit));
    f.side = fit * zoom_;
    origin_ = {under.x - (mouse.x - f.at.x) / f.side, under.y - (mouse.y - f.at.y) / f.side};
  }
  if (ImGui::IsItemActivated()) panned_ = false;
  if (ImGui::IsItemActive() && ImGui::IsMouseDragging(ImGuiMouseButton_Left, px(4))) {
    panned_ = true;
    origin_.x -= io.MouseDelta.x / f.side;
    origin_.y -= io.MouseDelta.y / f.side;
  }
  const auto limit = [](float& origin, int cells, float room, float side) {
    origin = std::clamp(origin, 0.0f, std::max(0.0f, static_cast<float>(cells) - room / side));
  };
  limit(origin_.x, f.columns, f.size.x, f.side);
  limit(origin_.y, f.rows, f.size.y, f.side);
  f.first_column = static_cast<int>(origin_.x);
  f.first_row = static_cast<int>(origin_.y);
  f.last_column = std::min(f.columns, static_cast<int>(std::ceil(origin_.x + f.size.x / f.side)));
  f.last_row = std::min(f.rows, static_cast<int>(std::ceil(origin_.y + f.size.y / f.side)));
}

void PoolMap::draw_cells(ImDrawList* list, const PoolMapData& data, const Frame& f) const {
  const Theme& t = theme();
  const auto count = static_cast<int>(data.owners->size());
  const float x1 =
      std::min(f.at.x + f.size.x, f.at.x + (static_cast<float>(f.columns) - origin_.x) * f.side);
  const float y1 =
      std::min(f.at.y + f.size.y, f.at.y + (static_cast<float>(f.rows) - origin_.y) * f.side);
  picture_.draw(list, f.at, {x1, y1}, origin_.x, origin_.y, origin_.x + (x1 - f.at.x) / f.side,
                origin_.y + (y1 - f.at.y) / f.side);
  if (f.side >= px(kGapFrom)) {  // lines of the surface keep neighbours apart
    for (int c = f.first_column; c <= f.last_column; ++c) {
      const float x = f.at.x + (static_cast<float>(c) - origin_.x) * f.side;
      list->AddRectFilled({x - 1, f.at.y}, {x + 1, y1}, t.panel);
    }
    for (int r = f.first_row; r <= f.last_row; ++r) {
      const float y = f.at.y + (static_cast<float>(r) - origin_.y) * f.side;
      list->AddRectFilled({f.at.x, y - 1}, {x1, y + 1}, t.panel);
    }
  }
  const int visible = (f.last_column - f.first_column) * (f.last_row - f.first_row);
  const bool outlines = f.side >= px(kGapFrom) + 2 && visible <= kMostOutlines;
  const bool text = f.side >= px(kTextFrom);
  if (!outlines && !text) return;
  ImGui::PushFont(numbers(), ImGui::GetStyle().FontSizeBase * (f.side < px(28) ? 0.7f : 0.8f));
  ImVec2 min, max;
  for (int row = f.first_row; row < f.last_row; ++row) {
    for (int column = f.first_column; column < f.last_column; ++column) {
      const int block = row * f.columns + column;
      if (block < 1 || block >= count) continue;
      cell(f, block, min, max);
      const BlockOwner& owner = (*data.owners)[static_cast<std::size_t>(block)];
      if (owner.request < 0) {
        if (outlines) {
          list->AddRect({min.x + 1.5f, min.y + 1.5f}, {max.x - 1.5f, max.y - 1.5f},
                        mix(t.grid, t.border, 0.5f));
        }
        const std::int32_t turn = order_[static_cast<std::size_t>(block)];
        if (text && data.free_order && turn > 0) {
          draw_cell_text(list, min, max, t.text_dim, std::to_string(turn));
        }
      } else if (text) {
        const bool dimmed = data.emphasis >= 0 && owner.request != data.emphasis;
        const ImU32 colour = group_colour(owner.request, owner.group, data.groups);
        draw_cell_text(list, min, max, dimmed ? t.text_faint : text_on(colour),
                       std::to_string(block));
      }
    }
  }
  ImGui::PopFont();
}

void PoolMap::draw_marks(ImDrawList* list, const PoolMapData& data, const Frame& f) const {
  ImVec2 min, max;
  if (cell(f, 0, min, max)) draw_hatch(list, {min.x + 1, min.y + 1}, {max.x - 1, max.y - 1});
  if (f.side >= px(4)) {
    const auto mark_all = [&](const std::vector<std::int32_t>* blocks, LegendMark mark) {
      if (blocks == nullptr || blocks->size() > kMostMarks) return;
      for (const std::int32_t block : *blocks) {
        if (cell(f, block, min, max)) draw_mark(list, mark, min, max);
      }
    };
    if (data.on_host != nullptr) {
      const auto known = static_cast<int>(data.on_host->size());
      const int last = std::min(known, f.last_row * f.columns);
      for (int block = f.first_row * f.columns; block < last; ++block) {
        if (!(*data.on_host)[static_cast<std::size_t>(block)]) continue;
        if (cell(f, block, min, max)) draw_mark(list, LegendMark::kHost, min, max);
      }
    }
    mark_all(data.fresh, LegendMark::kFresh);
    mark_all(data.freed, LegendMark::kFreed);
  }
  if (data.selected >= 0 && data.selected < static_cast<int>(data.owners->size()) &&
      cell(f, data.selected, min, max)) {
    draw_selected(list, min, max);
  }
}

PoolMapEvents PoolMap::draw(const char* id, const PoolMapData& data, ImVec2 size) {
  PoolMapEvents events;
  const auto count = static_cast<int>(data.owners->size());
  if (count == 0 || size.x < 8 || size.y < 8) return events;
  Frame f;
  f.at = ImGui::GetCursorScreenPos();
  f.at = {std::floor(f.at.x), std::floor(f.at.y)};
  f.size = {std::floor(size.x), std::floor(size.y)};
  // The largest square cells, of whole pixels, with which all blocks fit.
  float side = std::floor(std::sqrt(f.size.x * f.size.y / static_cast<float>(count)));
  const auto rows_at = [&](float s) {
    const int columns = std::clamp(static_cast<int>(f.size.x / s), 1, kWidest);
    return (count + columns - 1) / columns;
  };
  while (side > 1 && static_cast<float>(rows_at(side)) * side > f.size.y) side -= 1;
  side = std::clamp(side, 1.0f, std::floor(px(kLargestCell)));
  f.columns = std::clamp(static_cast<int>(f.size.x / side), 1, kWidest);
  f.rows = std::min(kWidest, rows_at(side));
  f.side = side * zoom_;
  f.size.y = std::min(f.size.y, static_cast<float>(f.rows) * f.side);
  refresh(data,
          {data.version, f.columns, data.emphasis, data.free_order, theme().panel, owner_colour(0)},
          f.rows);

  ImGui::InvisibleButton(id, f.size);
  ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelY);
  navigate(f);
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->PushClipRect(f.at, {f.at.x + f.size.x, f.at.y + f.size.y}, true);
  draw_cells(list, data, f);
  draw_marks(list, data, f);
  if (ImGui::IsItemHovered()) {
    const ImVec2 mouse = ImGui::GetMousePos();
    const int column = static_cast<int>(origin_.x + (mouse.x - f.at.x) / f.side);
    const int row = static_cast<int>(origin_.y + (mouse.y - f.at.y) / f.side);
    const int block = row * f.columns + column;
    if (column >= 0 && column < f.columns && row >= 0 && block < count) {
      ImVec2 min, max;
      cell(f, block, min, max);
      draw_hovered(list, min, max);
      events.hovered = block;
      events.clicked = (ImGui::IsItemDeactivated() && !panned_) || picked_for_menu();
      events.double_clicked = ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left);
    } else if (ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) {
      zoom_ = 1;
    }
  }
  list->PopClipRect();
  return events;
}

}  // namespace attnscope::gui
