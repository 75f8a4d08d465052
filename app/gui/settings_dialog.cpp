#include "app/gui/settings_dialog.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "app/gui/icons.h"
#include "app/gui/key_chord.h"
#include "app/gui/text_input.h"
#include "app/gui/widgets.h"
#include "app/text/text.h"

namespace attnscope::gui {
namespace {

void label(const char* text, const char* help) {
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  ImGui::AlignTextToFramePadding();
  ImGui::TextUnformatted(text);
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) tooltip(help);
  ImGui::TableNextColumn();
}

bool matches(const Command& command, const std::string& filter) {
  const std::string wanted = lower(trimmed(filter));
  return wanted.empty() || lower(command.title).find(wanted) != std::string::npos ||
         command.id.find(wanted) != std::string::npos;
}

}  // namespace

void SettingsDialog::register_commands(Ui& ui) {
  ui.commands.add({.id = "settings.open",
                   .title = "Settings ..",
                   .group = "View",
                   .help = "Theme, scale, colours, memory, shortcuts.",
                   .shortcut = "Ctrl+Comma",
                   .run = [this](std::string_view) -> Result<void> {
                     dialog_.open();
                     return {};
                   }});
}

void SettingsDialog::draw_scale(Ui& ui) {
  const float now = std::round(ui.settings.scale * 100);
  if (scale_ == 0) scale_ = now;
  ImGui::SetNextItemWidth(px(200));
  // Applied when it is let go, since the slider itself grows with it.
  ImGui::SliderFloat("##scale", &scale_, 75, 300, "%.0f %%", ImGuiSliderFlags_AlwaysClamp);
  const bool done = ImGui::IsItemDeactivatedAfterEdit();
  if (done) ui.run(fmt::format("settings.scale={:.2f}", std::round(scale_) / 100));
  if (!ImGui::IsItemActive()) scale_ = 0;
  for (const int percent : {100, 125, 150, 200}) {
    ImGui::SameLine();
    if (ImGui::Button(fmt::format("{} %##scale {}", percent, percent).c_str())) {
      ui.run(fmt::format("settings.scale={:.2f}", percent / 100.0));
    }
  }
}

void SettingsDialog::draw_budget(Ui& ui, Budget& budget, const char* command, std::int64_t now,
                                 const char* unit, const char* help) {
  if (!budget.typed) budget.text = std::to_string(now);
  ImGui::SetNextItemWidth(px(100));
  if (text_input(fmt::format("##{}", command).c_str(), budget.text)) budget.typed = true;
  if (ImGui::IsItemDeactivatedAfterEdit()) {
    const auto ok = ui.commands.run(fmt::format("{}={}", command, budget.text));
    budget.error = ok ? std::string() : ok.error().text();
    budget.typed = !ok;
  }
  ImGui::SameLine();
  ImGui::TextUnformatted(unit);
  if (budget.error.empty()) {
    dim(help);
  } else {
    paragraph(budget.error, Verdict::kWrong);
  }
}

void SettingsDialog::draw_looks(Ui& ui) {
  if (!ImGui::BeginTable("##looks", 2, ImGuiTableFlags_SizingFixedFit)) return;
  ImGui::TableSetupColumn("label");
  ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
  label("Theme", "Colours of the whole screen. Files in the themes folder are listed too.");
  std::vector<const char*> names;
  int current = -1;
  for (std::size_t i = 0; i < themes_.size(); ++i) {
    names.push_back(themes_[i].c_str());
    if (themes_[i] == ui.settings.theme) current = static_cast<int>(i);
  }
  if (segmented("theme", &current, names.data(), static_cast<int>(names.size()))) {
    ui.run("settings.theme=" + themes_[static_cast<std::size_t>(current)]);
  }
  if (current < 0) dim("in force: " + ui.settings.theme);
  label("Scale", "Size of text and spacing, on top of the monitor's own.");
  draw_scale(ui);
  label("Colours of values", "From the smallest to the largest value in heat maps.");
  constexpr std::array kMaps = {"viridis", "grey"};
  int map = ui.settings.colour_map == "grey" ? 1 : 0;
  if (segmented("map", &map, kMaps.data(), 2)) {
    ui.run(std::string("settings.colour_map=") + kMaps[static_cast<std::size_t>(map)]);
  }
  ImGui::SameLine(0, px(12));
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 size = {px(140), ImGui::GetFrameHeight()};
  ImGui::Dummy(size);
  constexpr int kSteps = 48;
  for (int i = 0; i < kSteps; ++i) {
    const auto x = [&](int k) { return at.x + size.x * static_cast<float>(k) / kSteps; };
    ImGui::GetWindowDrawList()->AddRectFilled(
        {x(i), at.y}, {x(i + 1), at.y + size.y},
        magnitude_colour((static_cast<float>(i) + 0.5f) / kSteps));
  }
  label("Animations", "Motion where it explains something, such as a block that changes owner.");
  bool moving = ui.settings.animations;
  if (ImGui::Checkbox("##animations", &moving)) ui.run("settings.animations");
  label("Whole sentences",
        "Panels show all of their sentence; else one line, and a click unfolds it.");
  bool whole = ui.settings.whole_sentences;
  if (ImGui::Checkbox("##whole_sentences", &whole)) ui.run("settings.whole_sentences");
  label("Memory for traces", "How much of the past is at hand without computing it again.");
  draw_budget(
      ui, traces_, "settings.trace_budget", ui.settings.trace_budget_mb, "MiB",
      "Tensors of past steps are kept in so much memory; older steps are replayed when they are "
      "asked for. Takes effect with the next session.");
  label("Memory for rewind points", "How few steps are replayed on the way back.");
  draw_budget(
      ui, rewind_points_, "settings.checkpoint_budget", ui.settings.rewind_budget_mb, "MiB",
      "Going back starts at the nearest rewind point. When the memory is used up every second "
      "one goes, over all steps.");
  label("Block events", "How far back the life of a block is told.");
  draw_budget(ui, events_, "settings.kept_events", ui.settings.kept_events, "events",
              "They outlive the tensors of their steps and are saved with captures. Takes effect "
              "with the next session.");
  label("Invariants",
        "What must hold of the block manager and the scheduler is checked around every step; the "
        "session stops at the op that breaks it.");
  constexpr std::array kChecked = {"off", "step", "call"};
  int level = static_cast<int>(ui.settings.invariants);
  if (segmented("invariants", &level, kChecked.data(), 3)) {
    ui.run(std::string("settings.invariants=") + kChecked[static_cast<std::size_t>(level)]);
  }
  ImGui::EndTable();
}

// Gives the keys to the command, or remembers whose they are.
void SettingsDialog::set_shortcut(Ui& ui, const std::string& id, const std::string& keys) {
  conflict_keys_.clear();
  shortcut_error_.clear();
  if (!keys.empty()) {
    const auto normal = normalise_shortcut(keys);
    for (const Command& other : ui.commands.all()) {
      if (!normal || other.id == id || ui.commands.shortcut(other.id) != *normal) continue;
      conflict_keys_ = *normal;
      conflict_id_ = id;
      conflict_with_ = other.id;
      return;
    }
  }
  if (auto ok = ui.commands.run("shortcut.set=" + id + ":" + keys); !ok) {
    shortcut_error_ = ok.error().text();
  }
}

void SettingsDialog::capture(Ui& ui) {
  if (capturing_.empty()) return;
  const std::string keys = pressed_chord();
  if (keys.empty()) return;
  const std::string id = capturing_;
  capturing_.clear();
  if (keys == "Escape") return;
  set_shortcut(ui, id, keys == "Backspace" || keys == "Delete" ? std::string() : keys);
}

void SettingsDialog::draw_shortcut(Ui& ui, const Command& command) {
  ImGui::PushID(command.id.c_str());
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  ImGui::AlignTextToFramePadding();
  ImGui::TextUnformatted(command.title.c_str());
  if (!command.help.empty() && ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) {
    tooltip(command.help);
  }
  ImGui::TableNextColumn();
  ImGui::PushFont(numbers(), 0);
  ImGui::TextColored(ImGui::ColorConvertU32ToFloat4(theme().text_dim), "%s", command.id.c_str());
  ImGui::PopFont();
  ImGui::TableNextColumn();
  const std::string keys = ui.commands.shortcut(command.id);
  const bool capturing = capturing_ == command.id;
  const std::string text = capturing ? "press keys .." : keys.empty() ? "none" : keys;
  if (capturing) ImGui::PushStyleColor(ImGuiCol_Button, with_alpha(theme().accent, 0.4f));
  if (keys.empty() && !capturing) ImGui::PushStyleColor(ImGuiCol_Text, theme().text_faint);
  if (ImGui::Button((text + "###keys").c_str(), {-FLT_MIN, 0})) capturing_ = command.id;
  if (keys.empty() && !capturing) ImGui::PopStyleColor();
  if (capturing) ImGui::PopStyleColor();
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) {
    tooltip(
        "Click, then press the new combination.\nEscape leaves it as it is, Backspace removes "
        "it.");
  }
  ImGui::TableNextColumn();
  if (ui.commands.user_shortcuts().contains(command.id)) {
    if (ImGui::SmallButton(icon::kUndo)) set_shortcut(ui, command.id, command.shortcut);
    if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) {
      tooltip(command.shortcut.empty() ? "Back to none." : "Back to " + command.shortcut + ".");
    }
  }
  ImGui::PopID();
}

void SettingsDialog::draw_shortcuts(Ui& ui) {
  ImGui::SetNextItemWidth(px(240));
  text_input("##filter", filter_, "filter");
  ImGui::SameLine();
  command_button(ui, "shortcut.reset");
  if (!conflict_keys_.empty()) {
    const Command* other = ui.commands.find(conflict_with_);
    caution(fmt::format("{} belongs to \"{}\".", conflict_keys_,
                        other != nullptr ? other->title : conflict_with_));
    if (ImGui::Button("Take it from there")) {
      const std::string id = conflict_id_, keys = conflict_keys_, with = conflict_with_;
      set_shortcut(ui, with, "");
      set_shortcut(ui, id, keys);
    }
    ImGui::SameLine();
    if (ImGui::Button("Leave it")) conflict_keys_.clear();
  }
  if (!shortcut_error_.empty()) paragraph(shortcut_error_, Verdict::kWrong);
  capture(ui);
  const ImGuiTableFlags flags = ImGuiTableFlags_ScrollY | ImGuiTableFlags_RowBg |
                                ImGuiTableFlags_SizingStretchProp | ImGuiTableFlags_BordersOuterH;
  if (!ImGui::BeginTable("##shortcuts", 4, flags, {0, ImGui::GetContentRegionAvail().y})) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  ImGui::TableSetupColumn("command", 0, 3);
  ImGui::TableSetupColumn("id", 0, 3);
  ImGui::TableSetupColumn("keys", 0, 2);
  ImGui::TableSetupColumn("##reset", ImGuiTableColumnFlags_WidthFixed, px(28));
  ImGui::TableHeadersRow();
  for (std::size_t i = 0; i < ui.commands.all().size(); ++i) {
    const Command& command = ui.commands.all()[i];
    if (matches(command, filter_)) draw_shortcut(ui, command);
  }
  ImGui::EndTable();
}

void SettingsDialog::draw(Ui& ui) {
  if (!dialog_.begin("Settings", {720, 420}, capturing_.empty())) {
    capturing_.clear();
    return;
  }
  if (dialog_.appearing()) {
    themes_ = theme_names();
    traces_ = rewind_points_ = {};
    conflict_keys_.clear();
    shortcut_error_.clear();
  }
  constexpr std::array kPages = {"Looks and memory", "Shortcuts"};
  segmented("page", &page_, kPages.data(), 2);
  ImGui::SameLine(0, px(24));
  command_button(ui, "settings.undo", "Undo");
  ImGui::SameLine();
  command_button(ui, "settings.redo", "Redo");
  ImGui::SameLine();
  command_button(ui, "settings.reset", "Reset all");
  ImGui::Separator();
  if (page_ == 0) {
    draw_looks(ui);
  } else {
    draw_shortcuts(ui);
  }
  dialog_.end();
}

std::unique_ptr<Overlay> make_settings_dialog() { return std::make_unique<SettingsDialog>(); }

}  // namespace attnscope::gui
