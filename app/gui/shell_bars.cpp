// The shell's bars: menu with tool bar, cursor line, status bar.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "app/gui/icons.h"
#include "app/gui/process_memory.h"
#include "app/gui/shell.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "engine/family/models.h"
#include "engine/io/resting_memory.h"
#include "kernels/cpu/cpu_lane.h"

namespace attnscope::gui {
namespace {

constexpr std::array kMenus = {"File", "Session", "Selection", "View", "Layout", "Help"};

// First part of an id: entries of another family stand below a line.
std::string_view family(std::string_view id) { return id.substr(0, id.find('.')); }

void separator() {
  ImGui::SameLine(0, px(10));
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImGui::GetWindowDrawList()->AddLine(ImVec2(at.x, at.y + px(3)),
                                      ImVec2(at.x, at.y + ImGui::GetFrameHeight() - px(3)),
                                      theme().border);
  ImGui::Dummy(ImVec2(1, 1));
  ImGui::SameLine(0, px(10));
}

// A choice shown as a word; opens a list that runs commands.
template <class Entries>
void choice(const char* id, const std::string& shown, const char* help, Entries entries) {
  const float width = ImGui::CalcTextSize(shown.c_str()).x + px(28);
  ImGui::SetNextItemWidth(std::min(width, px(220)));
  if (ImGui::BeginCombo(id, shown.c_str(), ImGuiComboFlags_HeightLarge)) {
    entries();
    ImGui::EndCombo();
  }
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_DelayShort)) tooltip(help);
}

const char* references_word(References references) {
  switch (references) {
    case References::kNone:
      return "none";
    case References::kSim:
      return "ref.sim";
    default:
      return "ref.sim + ref.exact";
  }
}

void lane_entries(Ui& ui) {
  if (ImGui::Selectable("cpu", ui.bench.planted().empty())) ui.run("lane.set=cpu");
  ImGui::SeparatorText("per op");
  if (ImGui::Selectable("Choose in the scenario panel ..")) ui.run("panel.scenario");
}

void scenario_entries(Ui& ui) {
  ImGui::SeparatorText("shipped");
  for (const std::string& name : scenario_names()) {
    if (ImGui::Selectable(name.c_str(), name == ui.bench.setup().scenario.name)) {
      ui.run("scenario.open=" + name);
    }
  }
  if (!ui.settings.recent.empty()) {
    ImGui::SeparatorText("recent");
    for (const std::string& path : std::vector<std::string>(ui.settings.recent)) {
      if (ImGui::Selectable(path.c_str())) ui.run("scenario.open=" + path);
    }
  }
  ImGui::Separator();
  if (ImGui::Selectable("Open a file ..")) ui.run("scenario.open");
}

constexpr std::string_view kBetween = "  ·  ";

// Parts that do not fit are left out from the end; the tooltip has them all.
void parts_text(const std::string& text, float room) {
  std::string shown = text;
  while (ImGui::CalcTextSize(shown.c_str()).x > room) {
    const std::size_t cut = shown.rfind(kBetween);
    if (cut == std::string::npos) break;
    shown.resize(cut);
  }
  ImGui::TextUnformatted(shown.c_str());
  if (shown.size() < text.size() && ImGui::IsItemHovered()) tooltip(text);
}

// "124 of 124 taps as the reference, 41 decisions"; empty without a step.
std::pair<std::string, Verdict> verdict_of_step(const StepSummary* step) {
  if (step == nullptr) return {"", Verdict::kNotCompared};
  std::int64_t taps = 0, wrong = 0, open = 0;
  for (const LayerCell& cell : step->layers) {
    for (const std::int64_t count : cell.counts) taps += count;
    wrong += cell.counts[static_cast<std::size_t>(Verdict::kWrong)];
    open += cell.counts[static_cast<std::size_t>(Verdict::kNotCompared)];
  }
  if (wrong > 0) {
    return {fmt::format("{}  {} of {} taps wrong", verdict_glyph(Verdict::kWrong), wrong, taps),
            Verdict::kWrong};
  }
  if (taps == open) {
    return {fmt::format("{}  not compared", verdict_glyph(Verdict::kNotCompared)),
            Verdict::kNotCompared};
  }
  const std::string decisions =
      step->decisions > 0 ? fmt::format(", {} decisions", step->decisions) : "";
  return {fmt::format("{}  {} of {} taps as the reference{}", verdict_glyph(Verdict::kEqual),
                      taps - open, taps, decisions),
          Verdict::kRounding};
}

}  // namespace

void Shell::draw_menu_bar() {
  if (!ImGui::BeginMainMenuBar()) return;
  for (const char* menu : kMenus) {
    if (!ImGui::BeginMenu(menu)) continue;
    std::string_view last;
    for (const Command& command : ui_.commands.all()) {
      if (command.group != menu || !command.in_menu) continue;
      if (!last.empty() && family(command.id) != last) ImGui::Separator();
      last = family(command.id);
      command_menu_item(ui_, command.id);
    }
    ImGui::EndMenu();
  }
  draw_tool_bar();
  ImGui::EndMainMenuBar();
}

void Shell::draw_tool_bar() {
  const float room = ImGui::GetContentRegionAvail().x;
  if (room < px(260)) return;  // the menus hold all of it
  separator();
  const bool wide = room > px(760);
  if (wide) {
    const RunSetup& setup = ui_.bench.setup();
    choice("##scenario", setup.scenario.name.empty() ? "no scenario" : setup.scenario.name,
           "Scenario: model, prompts and pool. Click to open another.",
           [&] { scenario_entries(ui_); });
    const auto& faults = ui_.bench.lane_faults();
    choice("##lane",
           fmt::format("lane {}{}{}", fmt::join(setup.lanes, ", "),
                       ui_.bench.planted().empty() ? "" : ", " + ui_.bench.planted(),
                       faults.empty() ? "" : fmt::format(" {} cpu stands in", icon::kWarning)),
           faults.empty() ? "Who computes the ops." : faults.back().c_str(),
           [&] { lane_entries(ui_); });
    // A capture's are those of its recording; what is opened next has the session's.
    const Snapshot* shown = ui_.bench.snapshot();
    const References references = ui_.bench.capture() != nullptr && shown != nullptr
                                      ? shown->info->references
                                      : setup.references;
    choice("##references", references_word(references),
           "What every op is compared with. Without references steps run many times faster.", [&] {
             for (const char* name : {"none", "sim", "both"}) {
               const auto value = name[0] == 'n'   ? References::kNone
                                  : name[0] == 's' ? References::kSim
                                                   : References::kBoth;
               if (ImGui::Selectable(references_word(value), references == value)) {
                 ui_.run(fmt::format("references.set={}", name));
               }
             }
           });
    separator();
  }
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(px(2), 0));
  command_button(ui_, "cursor.first", icon::kFastBackward);
  command_button(ui_, "step.back", icon::kBackwardStep);
  command_button(ui_, "op.back", icon::kAngleLeft);
  command_button(ui_, "op.forward", icon::kAngleRight);
  command_button(ui_, "layer.forward", icon::kLayers);
  command_button(ui_, "step.forward", icon::kForwardStep);
  command_button(ui_, "run.until", icon::kFastForward);
  ImGui::PopStyleVar();
  if (wide) {
    separator();
    command_button(ui_, "capture.record_all", icon::kRecord);
  }
  if (ui_.bench.busy()) command_button(ui_, "run.cancel", icon::kStop);
  if (ui_.commands.find("palette.open") == nullptr) return;
  const std::string palette =
      fmt::format("{}  {}", icon::kSearch, ui_.commands.shortcut("palette.open"));
  const float width = ImGui::CalcTextSize(palette.c_str()).x + 2 * ImGui::GetStyle().FramePadding.x;
  const float right = ImGui::GetWindowWidth() - width - px(10);
  if (right > ImGui::GetCursorPosX() + px(4)) {
    ImGui::SetCursorPosX(right);
    command_button(ui_, "palette.open", palette.c_str());
  }
}

void Shell::draw_cursor_line() {
  const float height = ImGui::GetFrameHeight() + px(6);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(px(10), px(3)));
  const ImGuiWindowFlags flags = ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoSavedSettings |
                                 ImGuiWindowFlags_NoScrollWithMouse;
  const bool visible =
      ImGui::BeginViewportSideBar("##cursor line", nullptr, ImGuiDir_Up, height, flags);
  ImGui::PopStyleVar();
  if (visible) {
    const Workbench& bench = ui_.bench;
    const Snapshot* now = bench.snapshot();
    ImGui::AlignTextToFramePadding();
    if (now == nullptr) {
      ImGui::TextUnformatted(bench.busy() ? "Making the model and its caches .." : "No session.");
    } else if (bench.cursor().step < 0) {
      ImGui::TextUnformatted(bench.busy() ? "Computing the first step .."
                                          : "Nothing ran yet: press Right for the first op.");
    } else {
      const Place& at = bench.cursor();
      const int index = layer_index(*now->info, at.layer);
      std::string text = fmt::format("step {}", at.step);
      if (index >= 0) {
        text +=
            fmt::format("  ·  layer {} ({})", at.layer, layer_type_name(now->info->config, index));
      }
      text += fmt::format("  ·  {}", as_op_find(at.op)->name);
      if (const std::int32_t request = bench.selected_request(); request >= 0) {
        // Panels of one token show another request's where the selected one has none.
        const std::int32_t selected = bench.selection().request;
        const auto requests = static_cast<std::int32_t>(now->info->request_names.size());
        if (selected != request && selected >= 0 && selected < requests) {
          text += fmt::format("  ·  request {} \"{}\", no token in this step; in its place",
                              selected, request_name(*now->info, selected));
        }
        text += fmt::format("  ·  request {} \"{}\"  ·  token {}", request,
                            request_name(*now->info, request), bench.selected_position());
      }
      text += fmt::format("  ·  head {}", bench.selection().head);
      const auto [verdict, worst] = verdict_of_step(bench.summary());
      const float right = ImGui::GetWindowWidth() - px(12);
      const float width = ImGui::CalcTextSize(verdict.c_str()).x;
      parts_text(text, right - (verdict.empty() ? 0 : width + px(12)) - ImGui::GetCursorPosX());
      if (bench.moving()) {
        ImGui::SameLine();
        ImGui::TextColored(ImGui::ColorConvertU32ToFloat4(theme().text_dim), "%s  computing",
                           icon::kSpinner);
      }
      ImGui::SameLine();
      if (!verdict.empty() && right - width > ImGui::GetCursorPosX()) {
        ImGui::SetCursorPosX(right - width);
        coloured(verdict_colour(worst), verdict);
      }
    }
  }
  ImGui::End();
}

// Memory and frames a second, brought up to date once a second: a frame in which nothing else
// changes looks like the one before.
const std::string& Shell::own_figures() {
  const double now = ImGui::GetTime();
  if (!own_figures_.empty() && now - own_figures_at_ < 1) return own_figures_;
  own_figures_at_ = now;
  own_figures_.clear();
  if (const std::int64_t memory = resident_bytes(); memory > 0) {
    own_figures_ = fmt::format("  ·  memory {}", format_bytes(static_cast<double>(memory)));
    const std::int64_t in_file = resting_bytes();
    if (in_file > 0) {
      own_figures_ += fmt::format(", file {}", format_bytes(static_cast<double>(in_file)));
    }
  }
  double sum = 0;
  const std::size_t frames = std::min(timed_frames_, frame_times_.size());
  for (std::size_t i = 0; i < frames; ++i) sum += frame_times_[i];
  if (sum > 0) own_figures_ += fmt::format("  ·  {:.0f} fps", static_cast<double>(frames) / sum);
  return own_figures_;
}

void Shell::draw_status_bar() {
  const float height = ImGui::GetFrameHeight() + px(2);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(px(10), px(1)));
  const ImGuiWindowFlags flags = ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoSavedSettings |
                                 ImGuiWindowFlags_NoScrollWithMouse;
  const bool visible =
      ImGui::BeginViewportSideBar("##status bar", nullptr, ImGuiDir_Down, height, flags);
  ImGui::PopStyleVar();
  if (visible) {
    const Workbench& bench = ui_.bench;
    const Snapshot* now = bench.snapshot();
    std::string text;
    if (const std::string running = bench.running(); !running.empty()) {
      text = fmt::format("{}  {}  {:.1f} s", icon::kSpinner, running, bench.running_seconds());
    } else if (const auto recording = bench.recording()) {
      text = fmt::format("{}  recording {}  {:.0f} %, Escape stops it", icon::kSpinner,
                         recording->second, 100 * recording->first);
    } else if (const auto asking = bench.asking()) {
      text = fmt::format("{}  on the way to {}  {:.0f} %, Escape stops it", icon::kSpinner,
                         format_place(asking->second), 100 * asking->first);
    } else if (bench.busy()) {
      text = fmt::format("{}  starting", icon::kSpinner);
    } else {
      text = now != nullptr && now->finished ? "engine idle, all requests finished" : "engine idle";
      if (const Capture* capture = bench.capture()) {
        text = fmt::format("capture {}, level {}{}, read-only", capture->path(),
                           capture_level_name(capture->index().level),
                           capture->complete() ? "" : ", INCOMPLETE");
      }
    }
    if (now != nullptr) {
      double seconds = 0, wall = 0;
      int steps = 0;
      for (std::size_t i = now->steps.size(); i-- > 0 && steps < 8;) {
        if (!now->steps[i]->complete) continue;
        seconds += now->steps[i]->seconds;
        wall += now->steps[i]->wall_seconds;
        ++steps;
      }
      if (steps > 0) {
        text += fmt::format("  ·  {} a step", format_us(seconds / steps * 1e6));
        if (now->info->references != References::kNone) {
          text += fmt::format(" ({} with references)", format_us(wall / steps * 1e6));
        }
      }
      // Of the step that is shown, once its blocks were taken.
      if (const StepSummary* step = bench.summary(); step != nullptr && step->usage.null > 0) {
        text += fmt::format("  ·  pool {}/{}", step->usage.held, now->info->usable_blocks());
      }
      if (bench.capture() == nullptr) {
        text += fmt::format("  ·  tracing: full, {} of {} MiB", now->trace_bytes >> 20,
                            ui_.settings.trace_budget_mb);
        const RewindUse& back = now->rewind;
        text += fmt::format("  ·  going back: {}, {} of {} MiB, at most {} replayed",
                            plural(back.count, "rewind point", "rewind points"), back.bytes >> 20,
                            back.budget >> 20, plural(back.longest_replay, "step", "steps"));
      }
    }
    text += fmt::format("  ·  lane {}", now != nullptr ? now->info->lanes : "cpu");
    text += own_figures();
    text += fmt::format("  ·  CPU {}", cpu::simd_level());
    if (!options_.graphics.empty()) text += "  ·  " + options_.graphics;
    ImGui::PushStyleColor(ImGuiCol_Text, theme().text_dim);
    ImGui::AlignTextToFramePadding();
    parts_text(text, ImGui::GetContentRegionAvail().x);
    ImGui::PopStyleColor();
  }
  ImGui::End();
}

}  // namespace attnscope::gui
