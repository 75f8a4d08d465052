#include "app/gui/backends_compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"
#include "engine/backend/attention_selector.h"

namespace attnscope::gui {

void BackendsCompare::register_commands(Ui& ui, const std::string& gpu) {
  ui.commands.add({.id = "backends.compare",
                   .title = "Backends: run the model by each",
                   .group = "View",
                   .help = "Runs the scenario that is open once for every attention backend that "
                           "takes its model, and compares what comes out.",
                   .run = [this, &ui, &gpu](std::string_view) -> Result<void> {
                     if (auto ok = run_.begin(ui.bench, gpu); !ok) return ok;
                     return ui.commands.run("panel.backends");
                   },
                   .in_menu = false});
  ui.commands.add({.id = "backends.compare_stop",
                   .title = "Backends: stop the comparison",
                   .group = "View",
                   .help = "What was shown before stays.",
                   .run = [this](std::string_view) -> Result<void> {
                     run_.stop();
                     return {};
                   },
                   .enabled = [this] { return runs(); },
                   .why_disabled = "no comparison is running",
                   .in_menu = false});
}

void BackendsCompare::fill_table() {
  table_.begin(run_.has_made());
  if (!table_.stale()) return;
  table_.columns(
      {{"backend", false, 1.75f},
       {"asked", false, 0.65f},
       {"pages", false, 0.5f, "NHD: the heads of a row lie together; HND: the rows of a head."},
       {"block", true, 0.5f},
       {"metadata", false, 1.35f, "The form that attention's tables are made of."},
       {"mask", false, 1.2f},
       {"from ref", true, 0.75f, "Largest difference of attention's outputs from ref.sim."},
       {"tolerance", true, 0.75f, "The largest share of it that is used."},
       {"others", true, 0.75f, "Values that are not those of the first backend."},
       {"tokens", true, 0.6f, "Sampled ones that are others."}});
  std::int64_t key = 0;
  for (const BackendRun& run : run_.report()->runs) {
    const std::string name = name_and_version(run.name, run.version);
    if (!run.refused.empty()) {
      const ImU32 faint = theme().text_dim;
      table_.row({{name, faint},
                  {run.platform, faint},
                  {},
                  {},
                  {"refused: " + run.refused, faint},
                  {},
                  {},
                  {},
                  {},
                  {}},
                 key++);
      continue;
    }
    const ImU32 colour = run.verdict == Verdict::kWrong ? theme().bad : theme().text;
    table_.row({{name, colour},
                {run.platform},
                {run.layout},
                whole_cell(run.block_size),
                {metadata_form_name(run.metadata)},
                {run.mask.empty() ? "causal" : run.mask},
                {format_error(run.error), 0, run.error, true, format_exact(run.error)},
                {format_share(run.of_tolerance), 0, run.of_tolerance, true,
                 format_exact(run.of_tolerance)},
                whole_cell(run.differing),
                whole_cell(run.changed)},
               key++);
  }
}

void BackendsCompare::draw(Ui& ui) {
  run_.poll();
  if (const auto share = run_.running()) {
    running_bar(ui, *share, "running", "backends.compare_stop");
  } else {
    command_button(ui, "backends.compare", "Run the model by each backend");
  }
  if (!run_.error().empty()) paragraph(run_.error(), Verdict::kWrong);
  if (run_.report() == nullptr) return;
  sentence(describe(*run_.report()));
  fill_table();
  const auto rows = static_cast<float>(run_.report()->runs.size() + 2);
  table_.draw("##backend runs", {-1, rows * ImGui::GetFrameHeightWithSpacing()}, -1);
}

}  // namespace attnscope::gui
