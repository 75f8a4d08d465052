// Scenario: model, pool, requests and lanes as a form; errors beside their field; apply, undo,
// save. Above it the batch that its requests are in the step under the cursor.
#include <fmt/format.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>

#include "app/gui/colour.h"
#include "app/gui/data_table.h"
#include "app/gui/icons.h"
#include "app/gui/scenario_form.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/reports/scenario_needs.h"
#include "app/text/folder_list.h"
#include "app/text/format.h"
#include "app/views/batch_view.h"
#include "app/workbench/scenario_edit.h"

namespace attnscope::gui {
namespace {

// What the session was opened with.
struct Opened {
  std::string text, path;
  std::vector<std::string> lanes;
  References references = References::kBoth;
  explicit Opened(const RunSetup& setup)
      : text(setup.scenario.text),
        path(setup.scenario.path),
        lanes(setup.lanes),
        references(setup.references) {}
  friend bool operator==(const Opened&, const Opened&) = default;
};

// A draft as the loader reads it, and what it asks for.
struct CheckedDraft {
  DraftErrors errors;
  std::shared_ptr<const Scenario> scenario;  // where there are no errors
  ScenarioNeeds needs;
  std::string sentence, memory;
};

CheckedDraft checked(const ScenarioFile& file, const std::string& path) {
  CheckedDraft out;
  DraftCheck check = check_draft(file, path);
  out.errors = std::move(check.errors);
  if (!check.scenario) return out;
  out.scenario = std::make_shared<const Scenario>(std::move(*check.scenario));
  out.needs = scenario_needs(*out.scenario);
  out.sentence = scenario_sentence(*out.scenario, out.needs);
  out.memory = memory_sentence(*out.scenario, out.needs);
  return out;
}

class ScenarioPanel : public Panel {
 public:
  ScenarioPanel() : Panel("scenario", "Scenario") { batch_rows_.least_width = 480; }
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  // The loader reads the draft on a thread of its own: a prompt may be a large file. The panel
  // picks the result up when it is drawn.
  bool animating() const override { return checking_.valid(); }
  std::string unsaved(const Ui& ui) override;

 private:
  void follow(const Ui& ui);
  void check();
  Result<void> apply(Ui& ui);
  Result<void> save(Ui& ui, const std::string& path);
  void draw_head(Ui& ui);
  void draw_batch(Ui& ui);

  ScenarioEditor editor_;
  ScenarioForm form_{editor_};
  std::uint64_t bench_version_ = ~std::uint64_t{0};
  std::optional<Opened> seen_;  // none: no scenario is open

  std::future<CheckedDraft> checking_;
  std::uint64_t checking_version_ = 0;
  std::uint64_t checked_version_ = ~std::uint64_t{0};
  CheckedDraft check_;             // of checked_version_
  std::string sentence_, memory_;  // of the last draft that could be read

  std::shared_ptr<const Snapshot> held_;
  const StepTrace* batch_of_ = nullptr;
  std::uint64_t batch_version_ = 0;
  bool batch_open_ = false;
  BatchView batch_;
  DataTable batch_rows_;
};

void ScenarioPanel::register_commands(Ui& ui) {
  const auto add = [&](const char* id, const char* title, const char* help, const char* shortcut,
                       std::function<Result<void>(std::string_view)> run,
                       std::function<bool()> enabled, const char* why, const char* argument = "") {
    ui.commands.add({.id = id,
                     .title = title,
                     .group = "File",
                     .help = help,
                     .shortcut = shortcut,
                     .argument = argument,
                     .run = std::move(run),
                     .enabled = std::move(enabled),
                     .why_disabled = why});
  };
  add(
      "scenario.new", "New scenario",
      "Begins a scenario of one request in the form; undo brings the edited one back.", "Ctrl+N",
      [this, &ui](std::string_view) -> Result<void> {
        follow(ui);
        editor_.start(new_scenario());
        return ui.commands.run("panel.scenario");
      },
      [] { return true; }, "");
  add(
      "scenario.save", "Save scenario",
      "Writes the scenario, as it is edited, to its file, or to another one.", "Ctrl+S",
      [this, &ui](std::string_view path) { return save(ui, std::string(path)); },
      [] { return true; }, "", "FILE");
  add(
      "scenario.apply", "Apply scenario",
      "Opens the session anew with the scenario as it is edited.", "Ctrl+Enter",
      [this, &ui](std::string_view) -> Result<void> {
        follow(ui);
        return apply(ui);
      },
      [this, &ui] {
        follow(ui);
        return !editor_.applied();
      },
      "nothing was changed");
  add(
      "scenario.revert", "Revert scenario", "Back to what the session runs; can be undone.", "",
      [this](std::string_view) -> Result<void> {
        editor_.revert();
        return {};
      },
      [this] { return !editor_.applied(); }, "nothing was changed");
  add(
      "scenario.batch", "Batch of the step",
      "Opens and closes what the scenario panel says of the step's batch: decodes, prefills, "
      "chunks, graph.",
      "",
      [this, &ui](std::string_view) {
        batch_open_ = !batch_open_;
        return ui.commands.run("panel.scenario");
      },
      [] { return true; }, "");
  add(
      "scenario.undo", "Undo edit of scenario", "Takes the last edit of the scenario back.",
      "Ctrl+Alt+Z",
      [this](std::string_view) -> Result<void> {
        editor_.undo();
        return {};
      },
      [this] { return editor_.can_undo(); }, "no edit to take back");
  add(
      "scenario.redo", "Redo edit of scenario", "Makes the edit that was taken back again.",
      "Ctrl+Alt+Shift+Z",
      [this](std::string_view) -> Result<void> {
        editor_.redo();
        return {};
      },
      [this] { return editor_.can_redo(); }, "no edit was taken back");
}

// Loads what the session was opened with, when somebody else opened it.
void ScenarioPanel::follow(const Ui& ui) {
  if (bench_version_ == ui.bench.version()) return;
  bench_version_ = ui.bench.version();
  const RunSetup& setup = ui.bench.setup();
  Opened now(setup);
  if (now == seen_) return;
  seen_.reset();
  if (setup.scenario.requests.empty()) return;
  seen_ = std::move(now);
  editor_.load(setup);
}

std::string ScenarioPanel::unsaved(const Ui& ui) {
  follow(ui);
  if (!seen_) return {};
  if (!editor_.applied())
    return "The scenario has edits that were not applied, and no file has them.";
  return editor_.saved() ? "" : "The scenario was edited, and no file has it as it is now.";
}

void ScenarioPanel::check() {
  using namespace std::chrono_literals;
  if (checking_.valid() && checking_.wait_for(0s) == std::future_status::ready) {
    check_ = checking_.get();
    checked_version_ = checking_version_;
    if (check_.scenario) {
      sentence_ = check_.sentence;
      memory_ = check_.memory;
    }
  }
  if (checking_.valid() || checked_version_ == editor_.version()) return;
  checking_version_ = editor_.version();
  checking_ = std::async(std::launch::async, [file = editor_.draft().file, path = editor_.path()] {
    return checked(file, path);
  });
}

Result<void> ScenarioPanel::apply(Ui& ui) {
  editor_.end();
  const bool known = checked_version_ == editor_.version();
  const CheckedDraft check = known ? check_ : checked(editor_.draft().file, editor_.path());
  if (!check.scenario) {
    const auto& [place, what] = *check.errors.begin();
    return bad_input(place.empty() ? what : fmt::format("{}: {}", place, what),
                     "mend it in the scenario panel, then apply again");
  }
  RunSetup setup = editor_.setup(*check.scenario);
  if (auto ok = ui.bench.check_setup(setup); !ok) return ok;
  setup.scenario.stops = ui.bench.scenario_stops();
  seen_ = Opened(setup);
  editor_.mark_applied(setup);
  ui.bench.open(std::move(setup), true);
  return {};
}

Result<void> ScenarioPanel::save(Ui& ui, const std::string& path) {
  follow(ui);
  editor_.end();
  const std::string target = path.empty() ? editor_.path() : path;
  if (path.empty() && (target.empty() || is_shipped(target))) {
    return ui.commands.run("scenario.save_as");  // asks where to
  }
  ScenarioFile file = editor_.draft().file;
  file.stops.list = ui.bench.scenario_stops();
  Result<ScenarioFile> written = save_draft(file, editor_.path(), target);
  if (!written) return written.error();
  editor_.mark_saved(std::move(*written), target);
  ui.bench.say(Message::Kind::kInfo, "Scenario written to " + target);
  return {};
}

void ScenarioPanel::draw_head(Ui& ui) {
  const std::size_t wrong = check_.errors.size();
  if (wrong > 0) {
    sentence(
        fmt::format("{} below; the session still runs {}.",
                    wrong == 1 ? "One field is wrong" : fmt::format("{} fields are wrong", wrong),
                    ui.bench.setup().scenario.name),
        Verdict::kWrong);
  } else if (!editor_.applied()) {
    caution("Changed, not applied: " + sentence_);
  } else {
    sentence(sentence_);
  }
  if (wrong == 0) dim(memory_);
  command_button(ui, "scenario.apply", "Apply");
  for (const auto& [id, label] : {std::pair{"scenario.revert", "Revert"},
                                  {"scenario.undo", icon::kUndo},
                                  {"scenario.redo", icon::kRedo},
                                  {"scenario.open", icon::kFolder},
                                  {"scenario.save", icon::kSave},
                                  {"scenario.save_as", "Save as .."}}) {
    ImGui::SameLine(0, px(4));
    command_button(ui, id, label);
  }
  const std::string& path = editor_.path();
  dim(path.empty() ? "in no file yet"
                   : path + (editor_.saved() ? "" : "  (with changes that are not saved)"));
}

// What became of the scenario's requests in the step under the cursor.
void ScenarioPanel::draw_batch(Ui& ui) {
  const StepTrace* step = ui.bench.step();
  if (step == nullptr || step->metadata.live.empty()) return;
  if (batch_of_ != step || held_.get() != ui.bench.snapshot()) {
    held_ = ui.bench.shared_snapshot();
    batch_of_ = step;
    ++batch_version_;
    batch_ = batch_view(*held_->info, *step);
  }
  const std::string title = fmt::format("Batch of step {}: {}###batch", format_count(step->step),
                                        batch_line(batch_.plan));
  ImGui::SetNextItemOpen(batch_open_);
  batch_open_ = ImGui::TreeNodeEx(
      title.c_str(), ImGuiTreeNodeFlags_NoTreePushOnOpen | ImGuiTreeNodeFlags_NoAutoOpenOnLog);
  if (!batch_open_) return;
  sentence(batch_.sentence);
  batch_rows_.begin(batch_version_);
  if (batch_rows_.stale()) {
    batch_rows_.columns({{"request", false, 1.4f},
                         {"phase", false, 0.8f},
                         {"tokens", true, 0.7f, "That it computes in this step."},
                         {"before", true, 0.7f, "Tokens that were computed before."},
                         {"length", true, 0.7f, "After this step."},
                         {"row", true, 0.5f, "Of the step's tables."},
                         {"chunk", false, 1, "In which it is gathered, by ratio of the layers."}});
    for (const BatchLine& line : batch_.rows) {
      batch_rows_.row({{line.name, owner_colour(line.request)},
                       {line.decode ? "decode" : "prefill"},
                       whole_cell(line.query),
                       whole_cell(line.computed),
                       whole_cell(line.length),
                       whole_cell(line.row),
                       {line.chunks}},
                      line.request);
    }
  }
  if (const auto request =
          batch_rows_.draw("##batch", {-1, 0}, ui.bench.selection().request, false)) {
    ui.bench.select_token(static_cast<std::int32_t>(*request), -1);
  }
  dim(batch_.order);
  if (batch_.plan.graph > 0) dim(batch_.graph);
  if (!batch_.drafts.empty()) dim(batch_.drafts);
  for (const std::string& chunk : batch_.chunks) dim(chunk);
}

void ScenarioPanel::draw(Ui& ui) {
  follow(ui);
  if (!seen_) {
    empty_state(ui, "No scenario is open. A scenario says which model runs which prompts.",
                "scenario.open");
    return;
  }
  check();
  if (checked_version_ == ~std::uint64_t{0}) {
    empty_state(ui, "Reading the scenario ..");
    return;
  }
  draw_head(ui);
  if (ImGui::BeginChild("##form")) {
    draw_batch(ui);
    form_.draw(ui, check_.errors, check_.scenario ? &check_.needs : nullptr);
  }
  ImGui::EndChild();
}

}  // namespace

std::unique_ptr<Panel> make_scenario_panel() { return std::make_unique<ScenarioPanel>(); }

}  // namespace attnscope::gui
