#include "app/gui/tables_state.h"

#include <fmt/format.h>

#include "app/gui/widgets.h"

namespace attnscope::gui {

const StepTrace* kept_step(Ui& ui, const char* gone, CaptureLevel needs) {
  const StepTrace* step = ui.bench.step();
  if (step == nullptr) {
    empty_state(ui,
                ui.bench.snapshot() == nullptr
                    ? "No session yet: its first picture has not arrived."
                    : gone,
                "step.forward", needs);
  }
  return step;
}

const StepTrace* step_with_tables(Ui& ui, const char* what) {
  Workbench& bench = ui.bench;
  if (bench.snapshot() == nullptr) {
    empty_state(ui, "No session yet: its first picture has not arrived.");
    return nullptr;
  }
  const StepTrace* step = bench.step();
  if (step == nullptr) {
    const std::string place = fmt::format("cursor.goto={}/-/block_tables", bench.cursor().step);
    empty_state(
        ui,
        fmt::format("{} of this step are no longer kept. Replaying the step brings them back.",
                    what),
        bench.cursor().step >= 0 ? place : "step.forward", CaptureLevel::kTables);
    return nullptr;
  }
  if (!step->requests.empty()) return step;
  empty_state(ui, "This step has not come to its block tables yet.", "op.forward",
              CaptureLevel::kTables);
  return nullptr;
}

}  // namespace attnscope::gui
