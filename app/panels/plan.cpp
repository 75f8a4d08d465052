// Plan: what each multiprocessor works on in the attention of a layer, and how the splits of the
// selected token become one result.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "app/gui/data_table.h"
#include "app/gui/tables_state.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/plan_view.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

class PlanPanel : public Panel {
 public:
  PlanPanel() : Panel("plan", "Plan") { table_.least_width = 520; }
  void draw(Ui& ui) override;

 private:
  void refresh(const Ui& ui, const StepTrace& step);
  void select_row(Ui& ui, std::int64_t row) const;
  std::string describe(const PlanBar& bar) const;
  ImU32 colour_of(const PlanBar& bar) const;
  // The bar that is clicked, -1 = none.
  std::int64_t draw_gantt(ImVec2 size);
  void draw_merge(ImVec2 size) const;
  void fill_table();

  std::shared_ptr<const Snapshot> held_;  // keeps step_ alive, so that its address is a key
  const StepTrace* step_ = nullptr;
  int layer_ = -1;  // index
  std::int64_t row_ = -1;
  std::uint64_t version_ = 0;  // of view_
  PlanView view_;
  DataTable table_;
};

void PlanPanel::refresh(const Ui& ui, const StepTrace& step) {
  const auto& layers = ui.bench.snapshot()->info->config.layers;
  const auto found = std::ranges::find(layers, ui.bench.cursor().layer);
  const int layer = found == layers.end() ? 0 : static_cast<int>(found - layers.begin());
  const std::int64_t row = ui.bench.selected_row();
  if (&step == step_ && layer == layer_ && row == row_ && version_ > 0) return;
  held_ = ui.bench.shared_snapshot();
  step_ = &step;
  layer_ = layer;
  row_ = row;
  ++version_;
  view_ = plan_view(held_->info->config, held_->info->layout, step.metadata, layer, row);
}

void PlanPanel::select_row(Ui& ui, std::int64_t row) const {
  ui.bench.select_token(step_->request_of(static_cast<std::int32_t>(row)),
                        step_->metadata.positions[to_size(row)]);
}

std::string PlanPanel::describe(const PlanBar& bar) const {
  return fmt::format(
      "split {} of the plan, part {}\nrow {}: request {}, position {}\ntiles {}-{} of its lists, "
      "behind {} of others",
      bar.split, bar.part, bar.row, step_->request_of(static_cast<std::int32_t>(bar.row)),
      format_count(step_->metadata.positions[to_size(bar.row)]), bar.begin, bar.end - 1,
      format_count(bar.start));
}

ImU32 PlanPanel::colour_of(const PlanBar& bar) const {
  return owner_colour(step_->request_of(static_cast<std::int32_t>(bar.row)));
}

std::int64_t PlanPanel::draw_gantt(ImVec2 size) {
  const Theme& t = theme();
  const auto lines = std::max<std::size_t>(view_.load.size(), 1);
  const float label = ImGui::CalcTextSize("000 ").x;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const bool clicked = ImGui::InvisibleButton("##gantt", size);
  const bool hovered = ImGui::IsItemHovered();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float left = at.x + label, line = size.y / static_cast<float>(lines);
  const float tile =
      (size.x - label) / static_cast<float>(std::max<std::int64_t>(view_.busiest, 1));
  list->AddRectFilled({left, at.y}, {at.x + size.x, at.y + size.y}, t.raised);
  const auto box = [&](const PlanBar& bar, ImVec2* min, ImVec2* max) {
    const float top = at.y + line * static_cast<float>(bar.worker);
    *min = {left + tile * static_cast<float>(bar.start), top};
    *max = {left + tile * static_cast<float>(bar.start + bar.tiles()), top + line};
  };
  const ImVec2 mouse = ImGui::GetMousePos();
  std::int64_t under = -1;
  const float gap = line > px(4) ? px(1) : 0;
  for (const PlanBar& bar : view_.bars) {
    ImVec2 min, max;
    box(bar, &min, &max);
    list->AddRectFilled({min.x, min.y + gap}, {max.x - gap, max.y}, colour_of(bar));
    if (hovered && mouse.x >= min.x && mouse.x < max.x && mouse.y >= min.y && mouse.y < max.y) {
      under = bar.split;
    }
  }
  for (const std::int64_t split : view_.selected) {
    ImVec2 min, max;
    box(view_.bars[to_size(split)], &min, &max);
    draw_selected(list, min, max);
  }
  // Numbers of multiprocessors where there is room for one.
  const auto every =
      static_cast<std::size_t>(std::max(1.0f, ImGui::GetTextLineHeight() / line + 1));
  for (std::size_t i = 0; i < view_.load.size(); i += every) {
    const std::string name = std::to_string(i);
    list->AddText(
        {left - ImGui::CalcTextSize((name + " ").c_str()).x, at.y + line * static_cast<float>(i)},
        t.text_dim, name.c_str());
  }
  if (under < 0) return -1;
  ImVec2 min, max;
  box(view_.bars[to_size(under)], &min, &max);
  draw_hovered(list, min, max);
  tooltip(describe(view_.bars[to_size(under)]) + "\nclick: selects the token");
  return clicked ? under : -1;
}

// Splits side by side, as wide as their tiles, and what they are added up to.
void PlanPanel::draw_merge(ImVec2 size) const {
  const Theme& t = theme();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImGui::InvisibleButton("##merge", size);
  const bool hovered = ImGui::IsItemHovered();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float tall = ImGui::GetTextLineHeight() + px(4);
  const auto tiles =
      static_cast<float>(std::max<std::int64_t>(view_.bars[to_size(view_.selected.back())].end, 1));
  const ImVec2 sum{at.x + size.x * 0.5f, at.y + size.y - tall};
  std::int64_t under = -1;
  for (const std::int64_t split : view_.selected) {
    const PlanBar& bar = view_.bars[to_size(split)];
    const ImVec2 min{at.x + size.x * static_cast<float>(bar.begin) / tiles, at.y};
    const ImVec2 max{at.x + size.x * static_cast<float>(bar.end) / tiles - px(2), at.y + tall};
    list->AddLine({(min.x + max.x) * 0.5f, max.y}, sum, t.border, px(1));
    list->AddRectFilled(min, max, colour_of(bar));
    draw_cell_text(list, min, max, text_on(colour_of(bar)),
                   fmt::format("{}-{} on {}", bar.begin, bar.end - 1, bar.worker));
    const ImVec2 mouse = ImGui::GetMousePos();
    if (hovered && mouse.x >= min.x && mouse.x < max.x && mouse.y < max.y) under = split;
  }
  const ImVec2 from{sum.x - px(60), sum.y}, to{sum.x + px(60), at.y + size.y};
  list->AddRectFilled(from, to, t.raised);
  list->AddRect(from, to, t.accent);
  draw_cell_text(list, from, to, t.text,
                 view_.selected.size() > 1 ? fmt::format("sum of {}", view_.selected.size())
                                           : std::string("written at once"));
  if (under >= 0) tooltip(describe(view_.bars[to_size(under)]));
}

void PlanPanel::fill_table() {
  table_.begin(version_);
  if (!table_.stale()) return;
  table_.columns(
      {{"split", true, 0.7f},
       {"row", true, 0.7f, "Token row of the step."},
       {"request", true, 0.8f},
       {"position", true, 0.9f},
       {"first tile", true, 0.8f, "Of 64 places each, the window's list first."},
       {"tiles", true, 0.7f},
       {"part", true, 0.7f, "Block of the grid that works on it."},
       {"multiprocessor", true, 1.1f},
       {"starts at", true, 0.8f, "Tiles that the multiprocessor has worked on before."}});
  for (const PlanBar& bar : view_.bars) {
    table_.row({whole_cell(bar.split), whole_cell(bar.row),
                whole_cell(step_->request_of(static_cast<std::int32_t>(bar.row))),
                whole_cell(step_->metadata.positions[to_size(bar.row)]), whole_cell(bar.begin),
                whole_cell(bar.tiles()), whole_cell(bar.part), whole_cell(bar.worker),
                whole_cell(bar.start)},
               bar.split);
  }
}

void PlanPanel::draw(Ui& ui) {
  const StepTrace* step = step_with_tables(ui, "The plan");
  if (step == nullptr) return;
  refresh(ui, *step);
  if (!view_.why_empty.empty()) {
    empty_state(ui, view_.why_empty, view_.off ? "panel.scenario" : "op.forward");
    return;
  }
  sentence(view_.sentence);
  const ImVec2 space = ImGui::GetContentRegionAvail();
  const float line =
      std::clamp(space.y * 0.5f / static_cast<float>(view_.load.size()), px(2), px(16));
  const float gantt = std::max(px(60), line * static_cast<float>(view_.load.size()));
  std::int64_t picked = draw_gantt({space.x, gantt});
  dim(fmt::format("{} layers, rule {}: a line is {}, a bar a split, as long as its tiles",
                  view_.type, view_.rule,
                  view_.shared_by > 1
                      ? fmt::format("{} multiprocessors that share a part", view_.shared_by)
                      : std::string("a multiprocessor")));
  if (!view_.row_sentence.empty()) paragraph(view_.row_sentence);
  if (!view_.selected.empty()) draw_merge({space.x, px(64)});
  fill_table();
  const std::int64_t shown = view_.selected.empty() ? -1 : view_.selected.front();
  const float room = ImGui::GetContentRegionAvail().y;
  if (const auto key =
          table_.draw("##splits", {-1, room > px(160) ? room : px(160)}, shown, true)) {
    picked = *key;
  }
  if (picked >= 0) select_row(ui, view_.bars[to_size(picked)].row);
}

}  // namespace

std::unique_ptr<Panel> make_plan_panel() { return std::make_unique<PlanPanel>(); }

}  // namespace attnscope::gui
