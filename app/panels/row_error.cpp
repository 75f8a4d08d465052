// Row errors: what the format of a layer's rows cost, a line a head, a column a token.
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
#include "app/views/row_error_view.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {
namespace {

class RowErrorPanel : public Panel {
 public:
  RowErrorPanel() : Panel("row_error", "Row errors") { table_.least_width = 420; }
  void draw(Ui& ui) override;

 private:
  std::int64_t position(const CacheErrors& cache, std::int64_t row) const {
    return step_->metadata.positions[to_size(cache.rows[to_size(row)])];
  }
  void draw_cache(Ui& ui, const CacheErrors& cache, int index);
  void fill_table();
  void select(Ui& ui, const CacheErrors& cache, std::int64_t row, std::int64_t head) const;

  std::shared_ptr<const Snapshot> held_;  // keeps step_ alive, so that its address is a key
  const StepTrace* step_ = nullptr;
  int layer_ = -1;
  std::uint64_t version_ = 0;
  RowErrorView view_;
  DataTable table_;
};

void RowErrorPanel::select(Ui& ui, const CacheErrors& cache, std::int64_t row,
                           std::int64_t head) const {
  const std::int32_t token = cache.rows[to_size(row)];
  ui.bench.select_token(step_->request_of(token), step_->metadata.positions[to_size(token)]);
  Selection selection = ui.bench.selection();
  selection.head = static_cast<int>(head);
  selection.tap = cache.name;
  ui.bench.select(selection);
}

// Columns of several tokens where there are more of them than room: the worst one counts.
void RowErrorPanel::draw_cache(Ui& ui, const CacheErrors& cache, int index) {
  dim(fmt::format("{}, {}: a line a head, a column a token", cache.name, cache.format));
  const std::int64_t rows = to_count(cache.rows.size());
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = std::max(ImGui::GetContentRegionAvail().x, px(60));
  const auto most = std::max<std::int64_t>(1, static_cast<std::int64_t>(width / px(4)));
  const std::int64_t together = (rows + most - 1) / most;
  const std::int64_t columns = (rows + together - 1) / together;
  const float wide = std::min(width / static_cast<float>(columns), px(24));
  const float high = std::clamp(px(120) / static_cast<float>(cache.heads), px(4), px(16));
  ImGui::InvisibleButton(
      fmt::format("##errors{}", index).c_str(),
      {wide * static_cast<float>(columns), high * static_cast<float>(cache.heads)});
  const bool over = ImGui::IsItemHovered();
  const bool click = ImGui::IsItemClicked() || picked_for_menu();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const std::int64_t selected = ui.bench.selected_row();
  for (std::int64_t h = 0; h < cache.heads; ++h) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t first = c * together, end = std::min(first + together, rows);
      const WorstOfRows worst = worst_of_rows(cache, h, first, end);
      const ImVec2 min{at.x + wide * static_cast<float>(c), at.y + high * static_cast<float>(h)};
      const ImVec2 max{min.x + wide - 1, min.y + high - 1};
      if (std::isnan(worst.error)) {
        list->AddRectFilled(min, max, verdict_colour(Verdict::kWrong));
      } else {
        const double share = view_.largest > 0 ? worst.error / view_.largest : 0;
        list->AddRectFilled(min, max, magnitude_colour(static_cast<float>(share)));
      }
      const std::int32_t* tokens = cache.rows.data();
      if (h == ui.bench.selection().head && tokens[first] <= selected &&
          selected <= tokens[end - 1]) {
        draw_selected(list, min, max);
      }
      if (!over || !ImGui::IsMouseHoveringRect(min, {max.x + 1, max.y + 1})) continue;
      draw_hovered(list, min, max);
      tooltip(fmt::format("head {}, position {}{}: {}", h, format_count(position(cache, worst.row)),
                          together > 1 ? fmt::format(", the worst of {} tokens", end - first) : "",
                          std::isnan(worst.error) ? "no number"
                                                  : fmt::format("{:.3g} of the head's length is "
                                                                "lost",
                                                                worst.error)));
      if (click) select(ui, cache, worst.row, h);
    }
  }
}

void RowErrorPanel::fill_table() {
  table_.begin(version_);
  if (!table_.stale()) return;
  table_.columns({{"cache"},
                  {"head", true, 0.5f},
                  {"error", true, 0.8f, "Of all rows together: length of what is lost, of theirs."},
                  {"largest", true, 0.8f, "Of one row."},
                  {"position", true, 0.8f, "Of the row with the largest."}});
  std::int64_t key = 0;
  for (const CacheErrors& cache : view_.caches) {
    const std::int64_t rows = to_count(cache.rows.size());
    for (std::int64_t h = 0; h < cache.heads; ++h, ++key) {
      const WorstOfRows worst = worst_of_rows(cache, h, 0, rows);
      const double all = cache.of_heads[to_size(h)];
      table_.row(
          {{cache.name},
           whole_cell(h),
           {fmt::format("{:.3g}", all), 0, all, true, format_exact(all)},
           {fmt::format("{:.3g}", worst.error), 0, worst.error, true, format_exact(worst.error)},
           whole_cell(position(cache, worst.row))},
          key);
    }
  }
}

void RowErrorPanel::draw(Ui& ui) {
  const StepTrace* step = kept_step(ui, "The rows of this step are not kept.");
  if (step == nullptr) return;
  const int layer = ui.bench.cursor().layer;
  // A step that runs on has more ops, in another snapshot.
  if (step != step_ || layer != layer_ || held_ != ui.bench.shared_snapshot()) {
    held_ = ui.bench.shared_snapshot();
    step_ = step;
    layer_ = layer;
    view_ = row_error_view(*held_->info, *step, layer);
    ++version_;
  }
  if (!view_.why_empty.empty()) {
    return empty_state(ui, view_.why_empty, view_.none ? "" : "op.forward");
  }
  sentence(view_.sentence);
  for (std::size_t i = 0; i < view_.caches.size(); ++i) {
    draw_cache(ui, view_.caches[i], static_cast<int>(i));
  }
  fill_table();
  const auto key = table_.draw("##heads", {-1, 0}, -1);
  if (!key) return;
  std::int64_t head = *key;
  for (const CacheErrors& cache : view_.caches) {
    if (head < cache.heads) {
      const std::int64_t rows = to_count(cache.rows.size());
      return select(ui, cache, worst_of_rows(cache, head, 0, rows).row, head);
    }
    head -= cache.heads;
  }
}

}  // namespace

std::unique_ptr<Panel> make_row_error_panel() { return std::make_unique<RowErrorPanel>(); }

}  // namespace attnscope::gui
