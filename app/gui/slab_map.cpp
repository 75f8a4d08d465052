#include "app/gui/slab_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"

namespace attnscope::gui {
namespace {

constexpr float kLowest = 24, kHighest = 46, kGap = 6;  // pixels

}  // namespace

void SlabMap::draw(Ui& ui) {
  const Snapshot* snapshot = ui.bench.snapshot();
  if (snapshot == nullptr) {
    empty_state(ui, "No session yet: its first picture has not arrived.");
    return;
  }
  if (info_ != snapshot->info) {
    info_ = snapshot->info;
    view_ = slab_view(*info_);
  }
  sentence(view_.sentence);
  if (ImGui::BeginChild("##slab_room", {0, 0})) draw_bars(ui);
  ImGui::EndChild();
}

void SlabMap::draw_bars(Ui& ui) {
  const Theme& t = theme();
  float names = 0;
  for (const SlabGroup& group : view_.groups) {
    names = std::max(names, ImGui::CalcTextSize(group.name.c_str()).x);
  }
  const ImVec2 at = ImGui::GetCursorScreenPos(), space = ImGui::GetContentRegionAvail();
  const float left = at.x + names + px(10), right = at.x + space.x - px(2);
  const auto count = static_cast<float>(view_.groups.size());
  const float high =
      std::clamp((space.y - px(4)) / std::max(count, 1.0f) - px(kGap), px(kLowest), px(kHighest));
  ImGui::InvisibleButton("##slab",
                         {std::max(space.x, px(40)), std::max(px(20), count * (high + px(kGap)))});
  if (right - left < px(60) || view_.stride <= 0) return;
  const bool hovered = ImGui::IsItemHovered();
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  ImDrawList* list = ImGui::GetWindowDrawList();
  const auto x_of = [&](std::int64_t byte) {
    return left +
           static_cast<float>(static_cast<double>(byte) / static_cast<double>(view_.stride)) *
               (right - left);
  };
  const int own_layer = ui.bench.cursor().layer;
  const std::int32_t block = ui.bench.selection().block;
  float top = at.y;
  for (const SlabGroup& group : view_.groups) {
    const float bottom = top + high;
    const float text_top = top + (high - ImGui::GetFontSize()) / 2;
    list->AddText({at.x, text_top}, t.text_dim, group.name.c_str());
    list->AddRect({left, top}, {right, bottom}, t.grid);
    for (const SlabPage& page : group.pages) {
      const float x0 = x_of(page.offset), x1 = x_of(page.offset + page.bytes);
      const float used = x_of(page.offset + page.used);
      const bool own = page.layer == own_layer;
      list->AddRectFilled({x0, top}, {x1, bottom}, t.raised);
      list->AddRectFilled({x0, top}, {std::max(used, x0 + 1), bottom},
                          with_alpha(t.accent, own ? 0.9f : 0.45f));
      list->AddRect({x0, top}, {x1, bottom}, own ? t.accent : t.surface);
      const std::string label = fmt::format("{} {}", page.layer, page.name);
      const std::string number = std::to_string(page.layer);
      const auto fits = [&](const std::string& text) {
        return ImGui::CalcTextSize(text.c_str()).x + px(8) < x1 - x0;
      };
      if (fits(label) || fits(number)) {
        list->AddText({x0 + px(4), text_top}, own ? text_on(t.accent) : t.text,
                      fits(label) ? label.c_str() : number.c_str());
      }
      if (!hovered || mouse.x < x0 || mouse.x >= x1 || mouse.y < top || mouse.y >= bottom) continue;
      draw_hovered(list, {x0, top}, {x1, bottom});
      tooltip(slab_page_text(view_, group, page, block));
    }
    const float end = x_of(group.bytes);
    if (hovered && mouse.x >= end && mouse.x < right && mouse.y >= top && mouse.y < bottom) {
      tooltip(fmt::format("{}: {} of each block are not used", group.name,
                          format_bytes(static_cast<double>(view_.stride - group.bytes))));
    }
    top = bottom + px(kGap);
  }
}

}  // namespace attnscope::gui
