// Row pool: which rows of host memory lie on the device for a layer, what hit and what was missed,
// who leaves next, and how alike consecutive selections are.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "app/gui/data_table.h"
#include "app/gui/tables_state.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/row_pool_view.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

TableCell percent_cell(double share) {
  const double percent = 100 * share;
  return {format_number(percent), 0, percent, true};
}

class RowPoolPanel : public Panel {
 public:
  RowPoolPanel() : Panel("row_pool", "Row pool") {
    layers_.least_width = 380;
    rows_.least_width = 380;
  }
  void draw(Ui& ui) override;

 private:
  void refresh(const Ui& ui, const StepTrace& step);
  std::string describe(std::size_t place) const;
  // The place that is clicked, -1 = none.
  std::int64_t draw_map(const Ui& ui, ImVec2 size) const;
  void fill_layers();
  void fill_rows();
  void select_place(Ui& ui, std::size_t place) const;
  std::int64_t last_position(const PoolPlace& place) const {
    return (std::int64_t{place.row} + 1) * view_.tokens_per_row - 1;
  }

  std::shared_ptr<const Snapshot> held_;  // keeps step_ alive, so that its address is a key
  const StepTrace* step_ = nullptr;
  const StepSummary* summary_ = nullptr;
  int layer_ = -2;
  std::uint64_t version_ = 0;  // of view_
  RowPoolView view_;
  DataTable layers_, rows_;
};

void RowPoolPanel::refresh(const Ui& ui, const StepTrace& step) {
  const Snapshot& snapshot = *ui.bench.snapshot();
  const StepSummary* summary = snapshot.summary(step.step);
  const int layer = ui.bench.cursor().layer;
  if (&step == step_ && summary == summary_ && layer == layer_ && version_ > 0) return;
  held_ = ui.bench.shared_snapshot();
  step_ = &step;
  summary_ = summary;
  layer_ = layer;
  ++version_;
  view_ = row_pool_view(*held_->info, step, held_->trace(step.step - 1), summary, layer);
}

std::string RowPoolPanel::describe(std::size_t at) const {
  const PoolPlace& place = view_.places[at];
  if (place.row < 0) return fmt::format("place {}: free", at);
  return fmt::format("place {}: {} {} of request {}, {}\n{} of {} to leave", at,
                     view_.tokens_per_row > 1 ? "entry" : "row", place.row, place.request,
                     pool_place_name(place.what), format_count(std::int64_t{place.age} + 1),
                     format_count(std::ssize(view_.places)));
}

void RowPoolPanel::select_place(Ui& ui, std::size_t at) const {
  const PoolPlace& place = view_.places[at];
  if (place.row >= 0) ui.bench.select_token(place.request, last_position(place));
}

std::int64_t RowPoolPanel::draw_map(const Ui& ui, ImVec2 size) const {
  const Theme& t = theme();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const bool clicked = ImGui::InvisibleButton("##rows", size);
  const bool hovered = ImGui::IsItemHovered();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const auto count = static_cast<float>(std::max<std::size_t>(view_.places.size(), 1));
  const float columns = std::max(1.0f, std::ceil(std::sqrt(count * size.x / size.y)));
  const float cell = std::min(size.x / columns, size.y / std::ceil(count / columns));
  const float gap = cell > px(6) ? px(1) : 0;
  const Selection& selection = ui.bench.selection();
  std::int64_t under = -1;
  const auto box = [&](std::size_t i, ImVec2* min, ImVec2* max) {
    const auto wide = static_cast<std::size_t>(columns);
    const std::size_t row = i / wide;
    *min = {at.x + cell * static_cast<float>(i % wide), at.y + cell * static_cast<float>(row)};
    *max = {min->x + cell - gap, min->y + cell - gap};
  };
  const ImVec2 mouse = ImGui::GetMousePos();
  for (std::size_t i = 0; i < view_.places.size(); ++i) {
    const PoolPlace& place = view_.places[i];
    ImVec2 min, max;
    box(i, &min, &max);
    const bool used = place.what != PoolPlace::What::kIdle;
    if (place.row < 0) {
      list->AddRect(min, max, t.border);
    } else {
      const ImU32 colour = owner_colour(place.request);
      const bool missed = place.what == PoolPlace::What::kMissed;
      const float frame = missed ? std::max(px(1), cell * 0.14f) : 0;
      if (missed) list->AddRectFilled(min, max, t.text);
      list->AddRectFilled({min.x + frame, min.y + frame}, {max.x - frame, max.y - frame},
                          used ? colour : (colour & 0x00ffffffu) | 0x50000000u);
      // The longer the bar, the sooner its row leaves.
      const float left = 1 - (static_cast<float>(place.age) + 0.5f) / count;
      const float foot = std::max(px(1), cell * 0.12f);
      if (cell >= px(6)) {
        list->AddRectFilled({min.x, max.y - foot}, {min.x + (max.x - min.x) * left, max.y},
                            t.text_dim);
      }
      if (place.what == PoolPlace::What::kNew) {
        list->AddCircleFilled({(min.x + max.x) / 2, (min.y + max.y) / 2},
                              std::max(px(1), cell * 0.2f), t.text);
      }
    }
    if (place.row >= 0 && place.request == selection.request &&
        selection.position / view_.tokens_per_row == place.row) {
      draw_selected(list, min, max);
    }
    if (hovered && mouse.x >= min.x && mouse.x < max.x && mouse.y >= min.y && mouse.y < max.y) {
      under = static_cast<std::int64_t>(i);
    }
  }
  if (under < 0) return -1;
  ImVec2 min, max;
  box(to_size(under), &min, &max);
  draw_hovered(list, min, max);
  tooltip(describe(to_size(under)) + "\nclick: selects its last token");
  return clicked ? under : -1;
}

void RowPoolPanel::fill_layers() {
  layers_.begin(version_);
  if (!layers_.stale()) return;
  layers_.columns({{"layer", true, 0.6f},
                   {"hits", true, 0.7f},
                   {"misses", true, 0.7f},
                   {"missed %", true, 0.8f},
                   {"overlap %", true, 0.9f,
                    "Of the rows that the newest tokens select: those that they selected in the "
                    "step before."},
                   {"new", true, 0.6f, "Written by this step, and back to host memory."},
                   {"evicted", true, 0.8f}});
  for (const RowPoolLayer& layer : view_.layers) {
    const PoolCounts& c = layer.counts;
    const std::int64_t selected = std::max<std::int64_t>(c.hits + c.misses, 1);
    layers_.row({whole_cell(c.layer), whole_cell(c.hits), whole_cell(c.misses),
                 percent_cell(static_cast<double>(c.misses) / static_cast<double>(selected)),
                 layer.overlap ? percent_cell(*layer.overlap) : TableCell{"-"},
                 whole_cell(c.written), whole_cell(c.evictions)},
                c.layer);
  }
}

void RowPoolPanel::fill_rows() {
  rows_.begin(version_);
  if (!rows_.stale()) return;
  rows_.columns({{"place", true, 0.7f},
                 {"request", true, 0.8f},
                 {view_.tokens_per_row > 1 ? "entry" : "row", true, 0.8f},
                 {"leaves as", true, 0.9f, "1 is the next to give up its place."},
                 {"in this step", false, 1.0f}});
  for (std::size_t i = 0; i < view_.places.size(); ++i) {
    const PoolPlace& place = view_.places[i];
    if (place.row < 0) continue;
    rows_.row(
        {whole_cell(static_cast<std::int64_t>(i)), whole_cell(place.request), whole_cell(place.row),
         whole_cell(std::int64_t{place.age} + 1), TableCell{pool_place_name(place.what)}},
        static_cast<std::int64_t>(i));
  }
}

void RowPoolPanel::draw(Ui& ui) {
  const StepTrace* step = step_with_tables(ui, "The row pool");
  if (step == nullptr) return;
  refresh(ui, *step);
  if (!view_.why_empty.empty()) {
    empty_state(ui, view_.why_empty, view_.off ? "panel.scenario" : "op.forward");
    return;
  }
  sentence(view_.sentence);
  const ImVec2 space = ImGui::GetContentRegionAvail();
  if (!view_.places.empty()) {
    const std::int64_t picked = draw_map(ui, {space.x, std::max(px(90), space.y * 0.36f)});
    dim("a square is a place, its colour the request; pale: not selected, framed: missed, dotted: "
        "new; the longer the bar at its foot, the sooner it leaves");
    if (picked >= 0) select_place(ui, to_size(picked));
  }
  fill_layers();
  const float tall =
      ImGui::GetTextLineHeightWithSpacing() * (static_cast<float>(view_.layers.size()) + 1.8f);
  if (const auto key = layers_.draw("##pools", {-1, std::min(tall, px(140))}, view_.layer, true)) {
    ui.bench.go_to({step_->step, static_cast<int>(*key), AS_OP_EXCHANGE_ROWS});
  }
  if (view_.places.empty()) return;
  fill_rows();
  const float room = ImGui::GetContentRegionAvail().y;
  if (const auto key = rows_.draw("##held", {-1, std::max(room, px(140))}, -1, true)) {
    select_place(ui, to_size(*key));
  }
}

}  // namespace

std::unique_ptr<Panel> make_row_pool_panel() { return std::make_unique<RowPoolPanel>(); }

}  // namespace attnscope::gui
