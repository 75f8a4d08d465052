#include "app/gui/shell.h"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <filesystem>

#include "app/gui/data_table.h"
#include "app/gui/input_queue.h"
#include "app/gui/key_chord.h"
#include "app/gui/layouts.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/text/format.h"

namespace attnscope::gui {
namespace {

constexpr double kToastSeconds = 7;
constexpr double kSaveEvery = 2;  // seconds between writes of changed settings
constexpr float kIdleGap = 0.4f;  // longer frames were waits

// Docked in the screen itself, not in a floating window: nothing but the cleared frame is below it.
bool lies_on_the_ground(const std::string& window_name) {
  const ImGuiWindow* window = ImGui::FindWindowByName(window_name.c_str());
  return window != nullptr && window->DockNode != nullptr &&
         ImGui::DockNodeGetRootNode(window->DockNode)->IsDockSpace();
}

}  // namespace

Shell::Shell(Ui ui, std::vector<std::unique_ptr<Panel>> panels,
             std::vector<std::unique_ptr<Overlay>> overlays, ShellOptions options)
    : ui_(ui),
      panels_(std::move(panels)),
      overlays_(std::move(overlays)),
      options_(std::move(options)) {
  register_shell_commands(*this);
  for (const auto& panel : panels_) panel->register_commands(ui_);
  for (const auto& overlay : overlays_) overlay->register_commands(ui_);
  ui_.commands.set_user_shortcuts(ui_.settings.shortcuts);
  if (find_layout(ui_.settings.layout) == nullptr) ui_.settings.layout = "step";
  switch_layout(ui_.settings.layout, false);
  messages_seen_ = ui_.bench.messages().size();
  applied_ = ui_.settings;
}

Shell::~Shell() = default;

std::string Shell::layout_path(const std::string& id) const {
  return options_.state_folder.empty()
             ? std::string()
             : options_.state_folder + "/layouts/" + id + room_suffix(room_) + ".ini";
}

void Shell::switch_layout(const std::string& id, bool fresh) {
  const std::string path = layout_path(id);
  std::error_code error;
  if (fresh && !path.empty()) std::filesystem::remove(path, error);
  layout_ = id;
  drawn_ = false;
  layout_frame_ = -1;
  ui_.settings.layout = id;
  build_layout_ = fresh || path.empty() || !std::filesystem::exists(path, error);
  load_layout_ = build_layout_ ? std::string() : path;
}

void Shell::change_settings(const std::function<void(Settings&)>& change) {
  Settings next = ui_.settings;
  change(next);
  if (next == ui_.settings) return;
  undo_.push(ui_.settings);
  take_settings(std::move(next));
}

// As undo has kept them.
void Shell::restore_settings(Settings next) {
  keep_state(ui_.settings, next);
  take_settings(std::move(next));
}

void Shell::take_settings(Settings next) {
  const Invariants before = ui_.settings.invariants;
  const std::int64_t rewind = ui_.settings.rewind_budget_mb;
  ui_.settings = std::move(next);
  ui_.bench.set_trace_budget(ui_.settings.trace_budget_mb);
  ui_.bench.set_kept_events(ui_.settings.kept_events);
  if (ui_.settings.rewind_budget_mb != rewind) {
    ui_.bench.set_rewind_budget(ui_.settings.rewind_budget_mb);
  }
  if (ui_.settings.invariants != before) ui_.bench.set_invariants(ui_.settings.invariants);
}

void Shell::before_frame() {
  if (!theme_applied_ || applied_.theme != ui_.settings.theme ||
      applied_.scale != ui_.settings.scale || applied_.colour_map != ui_.settings.colour_map) {
    auto wanted = load_theme(ui_.settings.theme);
    if (!wanted) {
      ui_.bench.say(Message::Kind::kError, wanted.error().text());
      ui_.settings.theme = "dark";
      wanted = load_theme("dark");
    }
    use_grey_magnitude(ui_.settings.colour_map == "grey");
    if (wanted) apply_theme(*wanted, ui_.settings.scale * options_.content_scale);
    theme_applied_ = true;
  }
  unfold_sentences(ui_.settings.whole_sentences);
  if (applied_.shortcuts != ui_.settings.shortcuts) {
    ui_.commands.set_user_shortcuts(ui_.settings.shortcuts);
  }
  // Whoever changed them: what is remembered changes without a command of the shell.
  if (!(applied_ == ui_.settings)) {
    applied_ = ui_.settings;
    dirty_ = changed_ = true;
  }
  if (!load_layout_.empty()) {
    changed_ = true;
    std::string problem;
    if (!load_layout(load_layout_, panels_, problem)) {
      build_layout_ = true;
      if (!problem.empty()) ui_.bench.say(Message::Kind::kWarning, problem);
    }
    load_layout_.clear();
  }
}

void Shell::frame(bool changed) {
  // Waiting for an event is no slow frame, and what is not shown is none.
  const float seconds = ImGui::GetIO().DeltaTime;
  if (seconds < kIdleGap && seconds > kUnseenFrame) {
    frame_times_[timed_frames_++ % frame_times_.size()] = seconds;
  }
  if (!wanted_picture_.file.empty()) due_picture_ = std::exchange(wanted_picture_, {});
  handle_shortcuts();
  quiet_.begin(changed || something_changed());
  draw_menu_bar();
  draw_cursor_line();
  draw_status_bar();
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  const ImGuiID dockspace = ImGui::GetID("dock space");
  if (const Room room = room_for(viewport->Size); room != room_) {
    if (drawn_) save();
    room_ = room;
    switch_layout(layout_, false);
  }
  // What the bars of this frame leave: WorkSize learns of them one frame later, and the very first
  // layout would not be the one that a reset gives.
  const ImVec2 rest = static_cast<const ImGuiViewportP*>(viewport)->GetBuildWorkRect().GetSize();
  if (build_layout_ && rest.x > 0 && rest.y > 0) {
    build_layout(layout_, room_, dockspace, rest, panels_);
    build_layout_ = false;
  }
  // The frame was cleared with the windows' colour: filling the screen with it again, here and
  // under every docked panel, would be most of a frame's time on a software renderer.
  ImGui::PushStyleColor(ImGuiCol_DockingEmptyBg, 0);
  ImGui::PushStyleColor(ImGuiCol_WindowBg, 0);
  ImGui::DockSpaceOverViewport(dockspace, viewport, ImGuiDockNodeFlags_PassthruCentralNode);
  ImGui::PopStyleColor(2);
  follow_failure();
  draw_panels();
  drawn_ = !build_layout_ && load_layout_.empty();
  for (const auto& overlay : overlays_) overlay->draw(ui_);
  if (quit_.draw(ui_)) wants_close_ = true;
  draw_messages();
  const double now = ImGui::GetTime();
  if ((dirty_ || ImGui::GetIO().WantSaveIniSettings) && now - last_save_ > kSaveEvery) save();
}

// Since the frame before, or something moves by itself.
bool Shell::something_changed() {
  const ImVec2 size = ImGui::GetIO().DisplaySize;
  const std::array<double, 4> now = {static_cast<double>(ui_.bench.version()),
                                     static_cast<double>(ui_.commands.runs()),
                                     static_cast<double>(size.x), static_cast<double>(size.y)};
  const bool same = std::exchange(seen_, now) == now && !std::exchange(changed_, false);
  return !same || build_layout_ || animating() || ui_.bench.busy() || ui_.bench.asking() ||
         ui_.bench.recording();
}

void Shell::save() {
  last_save_ = ImGui::GetTime();
  ImGui::GetIO().WantSaveIniSettings = false;
  if (options_.state_folder.empty()) {
    dirty_ = false;
    return;
  }
  Result<void> ok = save_settings(ui_.settings, options_.state_folder + "/settings.json");
  if (ok && drawn_) {
    ok = save_layout(layout_path(layout_), panels_);
  }
  if (!ok && dirty_) ui_.bench.say(Message::Kind::kWarning, ok.error().text());
  dirty_ = false;
}

double Shell::seconds_to_save() const {
  return dirty_ || ImGui::GetIO().WantSaveIniSettings ? kSaveEvery + 0.1 : 0;
}

double Shell::seconds_to_look() const {
  double least = 0;
  for (const auto& panel : panels_) {
    const double seconds = panel->drawn ? panel->seconds_to_look() : 0;
    if (seconds > 0 && (least == 0 || seconds < least)) least = seconds;
  }
  return least;
}

bool Shell::animating() const {
  const auto moves = [](const auto& item) { return item->animating(); };
  return !load_layout_.empty() || !wanted_picture_.file.empty() || !focus_panels_.empty() ||
         std::any_of(overlays_.begin(), overlays_.end(), moves) ||
         std::any_of(panels_.begin(), panels_.end(),
                     [&](const auto& panel) { return panel->drawn && panel->animating(); });
}

std::string Shell::failure() const {
  for (const auto& panel : panels_) {
    const std::string why = panel->failure();
    if (!why.empty()) return fmt::format("{}: {}", panel->title(), why);
  }
  return {};
}

Panel* Shell::panel(std::string_view id) {
  for (const auto& panel : panels_) {
    if (id == panel->id()) return panel.get();
  }
  return nullptr;
}

void Shell::handle_shortcuts() {
  const bool popup =
      ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel);
  if (chords_version_ != ui_.commands.shortcuts_version()) {
    chords_version_ = ui_.commands.shortcuts_version();
    chords_.clear();
    for (const Command& command : ui_.commands.all()) {
      const ImGuiKeyChord chord = key_chord(ui_.commands.shortcut(command.id));
      if (chord != 0) chords_.emplace_back(chord, command.id);
    }
  }
  // All are asked for in every frame: ImGui hears a shortcut that the frame before asked for.
  std::string pressed;
  for (const auto& [chord, id] : chords_) {
    if (!ImGui::Shortcut(chord, ImGuiInputFlags_RouteGlobal | ImGuiInputFlags_Repeat)) continue;
    const Command& command = *ui_.commands.find(id);
    // Escape with nothing to stop is a habit, not a mistake.
    const bool idle = chord == ImGuiKey_Escape && command.enabled && !command.enabled();
    if (pressed.empty() && !idle) pressed = id;
  }
  // Run last: a command may change the registry's shortcuts.
  if (!pressed.empty() && !popup) ui_.run(pressed);
}

// Rows of a cache that are wrong are no tensor: Bytes has them, beside those of the reference.
void Shell::follow_failure() {
  if (ui_.bench.landed() == landed_) return;
  landed_ = ui_.bench.landed();
  const OpTrace* op = ui_.bench.op();
  const bool rows = op != nullptr && op->cache_rows(ui_.bench.selection().tap) != nullptr;
  if (rows) {
    ui_.run("panel.bytes");
  } else if (on_rows_) {
    ui_.run("panel.tensor");
  }
  on_rows_ = rows;
}

// What a layout knows no place for joins other tabs instead of covering them, when it is opened
// there for the first time; afterwards it stays where the user moves it.
bool Shell::wants_place(const ImGuiWindow* window, const std::string& name) const {
  if (layout_frame_ < 0 || layout_frame_ == ImGui::GetFrameCount()) return false;
  const bool seen = window != nullptr && window->LastFrameActive >= layout_frame_;
  return !seen && !has_place(name);
}

void Shell::draw_panels() {
  if (layout_frame_ < 0 && !build_layout_ && load_layout_.empty()) {
    layout_frame_ = ImGui::GetFrameCount();
  }
  // One a frame: of several, the tabs of the last one alone would turn.
  std::string focus;
  if (!focus_panels_.empty()) {
    focus = std::move(focus_panels_.front());
    focus_panels_.pop_front();
  }
  for (const auto& panel : panels_) {
    panel->drawn = false;
    const std::string name = window_name(*panel);
    ImGuiWindow* window = ImGui::FindWindowByName(name.c_str());
    if (!panel->open) {
      forget_drawn_table(window);
      continue;
    }
    ImGui::SetNextWindowSize(ImVec2(px(520), px(360)), ImGuiCond_FirstUseEver);
    ImGui::SetNextWindowSizeConstraints(ImVec2(px(120), px(60)), ImVec2(FLT_MAX, FLT_MAX));
    if (focus == panel->id()) ImGui::SetNextWindowFocus();
    // The layout says which tab is in front; what a command opens is focused above.
    ImGuiWindowFlags flags = ImGuiWindowFlags_NoCollapse | ImGuiWindowFlags_NoFocusOnAppearing;
    if (!panel->scrolls())
      flags |= ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse;
    // Its tab has a cross: no second one at the end of the bar.
    ImGuiWindowClass one_cross;
    one_cross.DockNodeFlagsOverrideSet = ImGuiDockNodeFlags_NoCloseButton;
    ImGui::SetNextWindowClass(&one_cross);
    if (wants_place(window, name)) {
      ImGui::SetNextWindowDockID(roomiest_place(), ImGuiCond_Always);
    }
    const bool was_open = panel->open;
    if (lies_on_the_ground(name)) ImGui::SetNextWindowBgAlpha(0);
    const bool kept = panel->seconds_to_look() == 0 && quiet_.keep(window);
    if (!kept) forget_drawn_table(window);
    panel->drawn = ImGui::Begin(name.c_str(), &panel->open, flags) || kept;
    if (kept) QuietFrames::kept(window);
    if (panel->drawn && !kept) {
      panel->draw(ui_);
      if (ImGui::IsWindowFocused(ImGuiFocusedFlags_ChildWindows)) focused_panel_ = panel->id();
      draw_panel_menu(*panel);
    }
    ImGui::End();
    if (was_open != panel->open) dirty_ = true;
  }
  show_front_tabs();
}

// A bar that is too short for its tabs is scrolled to the one in front, when that or the room
// changes; afterwards it is the user's.
void Shell::show_front_tabs() {
  for (auto& entry : ImGui::GetCurrentContext()->DockContext.Nodes.Data) {
    const auto* node = static_cast<ImGuiDockNode*>(entry.val_p);
    ImGuiTabBar* bar = node != nullptr ? node->TabBar : nullptr;
    if (bar == nullptr) continue;
    ImGuiTabItem* tab = ImGui::TabBarFindTabByID(bar, bar->SelectedTabId);
    const float room = bar->ScrollingRectMaxX - bar->ScrollingRectMinX;
    if (tab == nullptr || room <= 0) continue;
    const std::pair<ImGuiID, float> now{tab->ID, room};
    if (std::exchange(front_tabs_[node->ID], now) == now) continue;
    const float most = std::max(0.0f, bar->WidthAllTabs - room);
    float to = bar->ScrollingTarget;
    to = std::max(to, tab->Offset + tab->Width - room);
    to = std::clamp(std::min(to, tab->Offset), 0.0f, most);
    bar->ScrollingTarget = bar->ScrollingAnim = to;
  }
}

// Most come forward for a while; all messages stay in the log.
void Shell::draw_messages() {
  const double now = ImGui::GetTime();
  const auto& messages = ui_.bench.messages();
  for (std::size_t i = std::min(messages_seen_, messages.size()); i < messages.size(); ++i) {
    if (messages[i].kind == Message::Kind::kNote) continue;
    toasts_.push_back({messages[i], now + kToastSeconds});
  }
  messages_seen_ = messages.size();
  std::erase_if(toasts_, [&](const Toast& toast) { return toast.until < now; });
  if (toasts_.size() > 4) toasts_.erase(toasts_.begin(), toasts_.end() - 4);
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  float y = viewport->WorkPos.y + viewport->WorkSize.y - px(12);
  for (std::size_t i = toasts_.size(); i-- > 0;) {
    const Message& message = toasts_[i].message;
    const float width = std::min(px(460), viewport->WorkSize.x - px(24));
    ImGui::SetNextWindowPos(ImVec2(viewport->WorkPos.x + viewport->WorkSize.x - px(12), y),
                            ImGuiCond_Always, ImVec2(1, 1));
    ImGui::SetNextWindowSizeConstraints(ImVec2(width, 0), ImVec2(width, FLT_MAX));
    ImGui::PushStyleColor(ImGuiCol_WindowBg, theme().raised);
    const ImGuiWindowFlags flags =
        ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoSavedSettings |
        ImGuiWindowFlags_NoFocusOnAppearing | ImGuiWindowFlags_NoNav | ImGuiWindowFlags_NoDocking |
        ImGuiWindowFlags_NoMove | ImGuiWindowFlags_AlwaysAutoResize;
    if (ImGui::Begin(fmt::format("##message{}", i).c_str(), nullptr, flags)) {
      if (message.kind == Message::Kind::kWarning) {
        caution(message.text);
      } else {
        paragraph(message.text,
                  message.kind == Message::Kind::kError ? Verdict::kWrong : Verdict::kNotCompared);
      }
      ImGui::BringWindowToDisplayFront(ImGui::GetCurrentWindow());
      if (ImGui::IsWindowHovered() && ImGui::IsMouseClicked(ImGuiMouseButton_Left)) {
        toasts_[i].until = now;
      }
      y -= ImGui::GetWindowHeight() + px(6);
    }
    ImGui::End();
    ImGui::PopStyleColor();
  }
}

}  // namespace attnscope::gui
