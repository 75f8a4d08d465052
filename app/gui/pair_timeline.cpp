#include "app/gui/pair_timeline.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"
#include "app/views/timeline_view.h"

namespace attnscope::gui {
namespace {

constexpr float kWidestColumn = 40;  // at scale 1

Verdict worst_of(const StepSummary& step) {
  Verdict worst = Verdict::kNotCompared;
  for (const LayerCell& cell : step.layers) worst = worse(worst, cell.worst);
  return worst;
}

bool parts_in(const RunPair& comparison, std::int64_t step) {
  const auto at = comparison.parted.lower_bound({step, std::numeric_limits<int>::min()});
  return at != comparison.parted.end() && at->first.first == step;
}

}  // namespace

PairTimelineEvents PairTimeline::draw(const RunPair& comparison, const PairSteps& steps,
                                      std::pair<std::int64_t, std::int64_t> here, float width,
                                      float height) const {
  PairTimelineEvents events;
  const Theme& t = theme();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImGui::InvisibleButton("##timelines", {std::max(width, px(40)), height});
  if (steps.steps.empty()) return events;
  const bool over = ImGui::IsItemHovered(), clicked = ImGui::IsItemClicked();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float names = ImGui::CalcTextSize("second ").x, gap = px(14);
  const float left = at.x + names, band = (height - gap) / 2;
  const std::int64_t first = steps.steps.front().step, last = steps.steps.back().step;
  const float column =
      std::min((width - names) / static_cast<float>(last - first + 1), px(kWidestColumn));
  const auto x_of = [&](std::int64_t step) {
    return left + static_cast<float>(step - first) * column;
  };
  const std::array<float, 2> tops = {at.y, at.y + band + gap};
  const ImVec2 mouse = ImGui::GetMousePos();
  const auto under = first + static_cast<std::int64_t>(std::floor((mouse.x - left) / column));
  for (std::size_t side = 0; side < 2; ++side) {
    const float top = tops[side], bottom = top + band;
    list->AddText({at.x, top + (band - ImGui::GetTextLineHeight()) / 2}, t.text_dim,
                  side == 0 ? "first" : "second");
    list->AddLine({left, bottom}, {x_of(last + 1), bottom}, t.grid);
    for (const PairStep& step : steps.steps) {
      const auto& summary = side == 0 ? step.a : step.b;
      if (!summary) continue;
      const float x0 = x_of(step.step), x1 = std::max(x0 + 1, x_of(step.step + 1) - px(1));
      const double share = steps.longest > 0 ? summary->seconds / steps.longest : 1;
      const float high = band * static_cast<float>(std::clamp(share, 0.12, 1.0));
      list->AddRectFilled({x0, bottom - high}, {x1, bottom},
                          with_alpha(verdict_colour(worst_of(*summary)), 0.62f));
      if (side == 0 && parts_in(comparison, step.step)) {
        list->AddRectFilled({x0, bottom}, {x1, bottom + px(3)}, t.bad);
      }
      const std::int64_t chosen = side == 0 ? here.first : here.second;
      if (step.step == chosen) draw_selected(list, {x0 - px(1), top}, {x1 + px(1), bottom});
      const bool inside = over && under == step.step && mouse.y >= top && mouse.y < bottom;
      if (!inside) continue;
      draw_hovered(list, {x0 - px(1), top}, {x1 + px(1), bottom});
      tooltip(fmt::format("{}, step {}: {}, {}, ops {}\nworst: {}{}\nclick: goes there",
                          side == 0 ? comparison.name_a : comparison.name_b, step.step,
                          summary->decode_only ? "decode" : "prefill",
                          plural(summary->tokens, "token", "tokens"),
                          format_us(summary->seconds * 1e6), verdict_word(worst_of(*summary)),
                          step.what.empty() ? "" : "\n" + step.what));
      if (clicked) (side == 0 ? events.first : events.second) = step.step;
    }
  }
  if (here.first >= 0 && here.second >= 0) {
    list->AddLine({x_of(here.first) + column / 2, tops[0] + band},
                  {x_of(here.second) + column / 2, tops[1]}, t.accent, px(1.5f));
  }
  return events;
}

}  // namespace attnscope::gui
