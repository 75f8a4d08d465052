#include "app/gui/tables_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/views/timeline_view.h"

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

std::string no_trace(const Workbench& bench, const char* so) {
  const Snapshot& now = *bench.snapshot();
  if (now.steps.empty()) return fmt::format("No step has run yet: {}.", so);
  if (bench.summary() != nullptr) {
    return fmt::format("The tensors of step {} are not kept. Run or replay it to see them.",
                       bench.cursor().step);
  }
  const std::string before = resumed_steps(now);
  return fmt::format("Step {} has not run yet: {}. {}",
                     std::max<std::int64_t>(bench.cursor().step, 0), so,
                     before.empty() ? "The timeline shows the steps that have."
                                    : fmt::format("Of the session, {}.", before));
}

TableCell block_cell(const StepTrace& step, std::int32_t block) {
  TableCell cell = whole_cell(block);
  const auto at = static_cast<std::size_t>(block);
  if (block > 0 && at < step.owners.size() && step.owners[at].request >= 0) {
    cell.colour = owner_colour(step.owners[at].request);
  }
  return cell;
}

const StepTrace* step_with_tables(Ui& ui, const char* what) {
  Workbench& bench = ui.bench;
  if (bench.snapshot() == nullptr) {
    empty_state(ui, "No session yet: its first picture has not arrived.");
    return nullptr;
  }
  const StepTrace* step = bench.step();
  if (step == nullptr) {
    const bool many = std::string_view(what).ends_with('s');
    const std::string place = fmt::format("cursor.goto={}/-/block_tables", bench.cursor().step);
    empty_state(ui,
                fmt::format("{} of this step {} no longer kept. Replaying the step brings {} back.",
                            what, many ? "are" : "is", many ? "them" : "it"),
                bench.cursor().step >= 0 ? place : "step.forward", CaptureLevel::kTables);
    return nullptr;
  }
  if (!step->requests.empty()) return step;
  empty_state(ui, "This step has not come to its block tables yet.", "op.forward",
              CaptureLevel::kTables);
  return nullptr;
}

}  // namespace attnscope::gui
