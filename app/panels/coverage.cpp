// Coverage: which paths of the engine the run has taken, where first, and how a scenario gets to
// the others. A click on a line goes to the first step that took it.
#include <fmt/format.h>

#include <memory>

#include "app/gui/data_table.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/coverage_view.h"

namespace attnscope::gui {
namespace {

class CoveragePanel : public Panel {
 public:
  CoveragePanel() : Panel("coverage", "Coverage") { table_.least_width = 760; }

  void draw(Ui& ui) override {
    Workbench& bench = ui.bench;
    if (bench.snapshot() == nullptr) {
      empty_state(ui, "No session yet: its first picture has not arrived.");
      return;
    }
    refresh(bench);
    if (!view_.why_empty.empty()) {
      empty_state(ui, view_.why_empty, bench.capture() != nullptr ? "" : "step.forward",
                  CaptureLevel::kSummary);
      return;
    }
    sentence(view_.sentence);
    fill_table();
    const ImVec2 size(0, ImGui::GetContentRegionAvail().y);
    if (const auto key = table_.draw("##paths", size, -1, false)) {
      go_to_first(bench, *key);
    }
  }

 private:
  void refresh(const Workbench& bench) {
    const std::int64_t step = bench.cursor().step;
    if (held_ == bench.shared_snapshot() && step == step_) return;
    held_ = bench.shared_snapshot();
    step_ = step;
    ++version_;
    view_ = coverage_view(*held_->info, *held_, step);
  }

  void fill_table() {
    table_.begin(version_);
    if (!table_.stale()) return;
    table_.columns({{"path", false, 2.2f},
                    {"times", true, 0.9f, "How often, over all steps that were watched."},
                    {"here", true, 0.8f, "How often in the step under the cursor."},
                    {"first step", true, 0.9f},
                    {"what it is; how to get there", false, 4}});
    for (std::size_t i = 0; i < view_.lines.size(); ++i) {
      const CoverageLine& line = view_.lines[i];
      const bool met = line.path.count > 0;
      const auto count = [](std::int64_t n) {
        return TableCell{n > 0 ? format_count(n) : "never", n > 0 ? 0 : theme().text_dim,
                         static_cast<double>(n), true, std::to_string(n)};
      };
      TableCell here = count(line.here);
      if (line.here == 0) here.text = "–";
      TableCell first{"–", theme().text_dim};
      if (met) {
        first = {std::to_string(line.path.first_step), 0, static_cast<double>(line.path.first_step),
                 true};
      }
      const std::string what =
          met ? line.path.sentence
              : fmt::format("{}. Try {}", line.path.sentence, line.path.advice);
      table_.row({{line.path.name, met ? 0 : theme().warn},
                  count(line.path.count),
                  std::move(here),
                  std::move(first),
                  {what}},
                 static_cast<std::int64_t>(i));
    }
  }

  void go_to_first(Workbench& bench, std::int64_t line) const {
    const CoveredPath& path = view_.lines[static_cast<std::size_t>(line)].path;
    if (path.count == 0) return;
    Place place = bench.cursor();
    place.step = path.first_step;
    bench.go_to(place);
  }

  CoverageView view_;
  DataTable table_;
  std::shared_ptr<const Snapshot> held_;
  std::int64_t step_ = -1;
  std::uint64_t version_ = 0;  // of view_
};

}  // namespace

std::unique_ptr<Panel> make_coverage_panel() { return std::make_unique<CoveragePanel>(); }

}  // namespace attnscope::gui
