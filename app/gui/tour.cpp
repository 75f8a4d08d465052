#include "app/gui/tour.h"

#include <fmt/format.h>

#include <array>

#include "app/gui/icons.h"
#include "app/gui/widgets.h"

namespace attnscope::gui {
namespace {

enum class Doing { kNothing, kMove, kBlock, kPlant, kPalette };

struct Stop {
  const char* title;
  const char* panel;
  const char* text;
  const char* command;  // a button that does it; may be null
  Doing doing;
};

constexpr std::array<Stop, 5> kStops = {{
    {"A model is decoding", "timeline",
     "Every column is a step, every row a layer. A calm cell agrees with its reference; a red one "
     "does not. Click a cell to look into it.",
     nullptr, Doing::kNothing},
    {"One op after another", "pipeline",
     "Press Right: the next op lights up, and all panels follow it. Left goes back, Ctrl+Right is "
     "the next step.",
     "op.forward", Doing::kMove},
    {"Memory by owner", "pool",
     "Every cell is a block of the paged cache. Click one: its tokens, its owner and who reads it "
     "show in every panel.",
     nullptr, Doing::kBlock},
    {"Plant a bug", "error",
     "Help, Try it replaces one op by a wrong one. The op is named in red, with the reason in "
     "words; Backspace takes the bug out again.",
     "lesson.random", Doing::kPlant},
    {"Everything by name", nullptr,
     "The palette finds every command by a few letters, and goes to any step or op by number.",
     "palette.open", Doing::kPalette},
}};

const Stop& stop(int step) { return kStops[static_cast<std::size_t>(step)]; }

}  // namespace

void Tour::register_commands(Ui& ui) {
  ui.commands.add({.id = "help.tour",
                   .title = "Tour",
                   .group = "Help",
                   .help = "Five notes on what is where.",
                   .run = [this, &ui](std::string_view) -> Result<void> {
                     go(ui, 0);
                     return {};
                   }});
  const auto before = ui.commands.on_run;
  ui.commands.on_run = [this, before](const std::string& id) {
    if (before) before(id);
    if (id == "palette.open") palette_seen_ = true;
  };
}

void Tour::go(const Ui& ui, int step) {
  step_ = step;
  done_ = palette_seen_ = false;
  before_ = {ui.bench.cursor(), ui.bench.selection(), ui.bench.planted()};
}

void Tour::finish(Ui& ui) {
  step_ = -1;
  if (!ui.settings.tour_seen) ui.run("tour.seen");
}

bool Tour::done(const Ui& ui) const {
  switch (stop(step_).doing) {
    case Doing::kNothing:
      return false;
    case Doing::kMove:
      return !(ui.bench.cursor() == before_.cursor);
    case Doing::kBlock:
      return ui.bench.selection().block >= 0 &&
             ui.bench.selection().block != before_.selection.block;
    case Doing::kPlant:
      return !ui.bench.planted().empty() && before_.planted.empty();
    case Doing::kPalette:
      return palette_seen_;
  }
  return false;
}

void Tour::draw(Ui& ui) {
  // It waits for something to show. That it was shown counts as seen, also if the program ends.
  if (!asked_ && ui.bench.snapshot() != nullptr) {
    asked_ = true;
    if (!ui.settings.tour_seen && step_ < 0) {
      go(ui, 0);
      ui.run("tour.seen");
    }
  }
  if (step_ < 0) return;
  done_ = done_ || done(ui);
  const Stop& now = stop(step_);
  const int last = static_cast<int>(kStops.size()) - 1;
  int next = step_;
  // Escape is the dialog's while one is open, and not the session's while a note is shown.
  const bool popup =
      ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel);
  bool over = !popup && ImGui::Shortcut(ImGuiKey_Escape, ImGuiInputFlags_RouteGlobal |
                                                             ImGuiInputFlags_RouteOverFocused);
  if (bubble_.begin("##tour", now.panel, 340, "##lesson")) {
    coloured(theme().accent, now.title);
    const std::string count = fmt::format("{} of {}", step_ + 1, last + 1);
    ImGui::SameLine(ImGui::GetWindowWidth() - ImGui::CalcTextSize(count.c_str()).x - px(14));
    ImGui::TextDisabled("%s", count.c_str());
    ImGui::TextWrapped("%s", now.text);
    if (now.panel != nullptr && !panel_rect(now.panel)) {
      const std::string show = fmt::format("panel.{}", now.panel);
      if (ui.commands.find(show) != nullptr) command_button(ui, show, "Show the panel");
    }
    if (now.command != nullptr) {
      command_button(ui, now.command);
      if (done_) {
        ImGui::SameLine();
        coloured(theme().good, icon::kCheck);
      }
    } else if (done_) {
      coloured(theme().good, icon::kCheck);
    }
    ImGui::Spacing();
    if (step_ > 0) {
      if (ImGui::Button("Back")) next = step_ - 1;
      ImGui::SameLine();
    }
    if (ImGui::Button(step_ == last ? "Done###next" : "Next###next")) next = step_ + 1;
    if (step_ < last) {
      ImGui::SameLine();
      if (ImGui::Button("Skip the tour")) over = true;
    }
  }
  bubble_.end();
  if (over || next > last) {
    finish(ui);
  } else if (next != step_) {
    go(ui, next);
  }
}

std::unique_ptr<Overlay> make_tour() { return std::make_unique<Tour>(); }

}  // namespace attnscope::gui
