#include "app/gui/mass_map.h"

#include <fmt/format.h>

#include "app/gui/widgets.h"
#include "app/text/format.h"
#include "app/views/sink_view.h"
#include "engine/model/numbers.h"

namespace attnscope::gui {

void MassMap::draw(Ui& ui, const StepTrace& step) {
  Workbench& bench = ui.bench;
  const SinkLayer shown = sink_layer(*bench.snapshot()->info, step, bench.cursor());
  const int head = bench.selection().head;
  const std::tuple key{step.find_role(shown.layer, AS_ROLE_ATTENTION), bench.selected_row(), head};
  if (!held_ || key != key_) {
    key_ = key;
    held_ = bench.shared_snapshot();
    note_ = shown.note;
    view_ = mass_view(*held_->info, step, shown.layer, bench.selected_row(), head);
    ++version_;
  }
  if (!view_.why_empty.empty()) {
    return empty_state(ui, "No layer of this model selects entries. " + view_.why_empty,
                       "op.forward", CaptureLevel::kSummary);
  }
  sentence(view_.sentence);
  if (!note_.empty()) dim(note_);
  const auto columns = std::ssize(view_.rows.slots);
  if (columns == 0) return;
  HeatMapData data;
  data.rows = view_.heads;
  data.columns = columns;
  data.value = [this, columns](std::int64_t row, std::int64_t column) {
    return static_cast<double>(view_.weight[to_size(row * columns + column)]);
  };
  data.row_axis = "head";
  data.column_axis = "token";
  data.column_name = [this](std::int64_t column) {
    return std::to_string(view_.rows.slots[to_size(column)].position);
  };
  data.value_name = "weight";
  data.note = [this](std::int64_t, std::int64_t column) {
    const WindowSlot& slot = view_.rows.slots[to_size(column)];
    return fmt::format("{}, block {} row {}", format_token(slot.token), slot.block, slot.row);
  };
  data.version = version_;
  std::int64_t selected = -1;
  for (std::int64_t i = 0; i < columns; ++i) {
    if (view_.rows.slots[to_size(i)].position == bench.selected_position()) selected = i;
  }
  const ImVec2 space = ImGui::GetContentRegionAvail();
  if (space.y < px(40)) return;
  const HeatMapEvents events =
      heat_map_.draw("##mass", data, space, head, selected, space.y > px(140));
  if (events.clicked && events.row >= 0 && events.column >= 0 && events.column < columns) {
    select(bench, events.row, events.column);
  }
}

void MassMap::select(Workbench& bench, std::int64_t head, std::int64_t column) const {
  const WindowSlot& slot = view_.rows.slots[to_size(column)];
  Selection selection = bench.selection();
  selection.head = static_cast<int>(head);
  selection.position = slot.position;
  selection.block = slot.block;
  selection.row = slot.row;
  selection.group = view_.rows.group;
  bench.select(selection);
}

}  // namespace attnscope::gui
