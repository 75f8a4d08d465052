// The screen around the panels: menu, tool bar, cursor line, dock space, status bar, shortcuts,
// layouts, settings. Draws with ImGui alone, so that it runs in a window, off screen and in tests.
//
//   Shell shell(ui, make_panels(), make_overlays(), options);
//   loop: shell.before_frame(); platform->begin_frame(..); shell.frame(); ImGui::Render(); ..
#pragma once

#include <imgui.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/layouts.h"
#include "app/gui/overlay.h"
#include "app/gui/panel.h"
#include "app/gui/quiet_frames.h"
#include "app/gui/quit_dialog.h"

namespace attnscope::gui {

struct ShellOptions {
  std::string state_folder;  // settings and layouts are kept there; empty = nothing is kept
  float content_scale = 1;   // of the monitor
  std::string graphics;      // description of the renderer, for the status bar
};

class Shell {
 public:
  Shell(Ui ui, std::vector<std::unique_ptr<Panel>> panels,
        std::vector<std::unique_ptr<Overlay>> overlays, ShellOptions options);
  ~Shell();
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  // Before ImGui's frame: applies a changed layout, theme or scale.
  void before_frame();
  // The whole screen. changed: something that is shown is not as it was in the frame before.
  void frame(bool changed = true);
  // Something moves by itself and wants the next frame soon.
  bool animating() const;
  // Of the first panel whose computation came to nothing, with its title; empty: of none.
  std::string failure() const;
  // Nothing has happened for some frames but that the mouse moved.
  bool quiet() const { return quiet_.quiet(); }
  bool wants_close() const { return wants_close_; }
  bool message_shown() const { return !toasts_.empty(); }  // one that came forward
  // The graphics context is to be made anew ("app.reset_graphics").
  bool take_reset_graphics() { return std::exchange(reset_graphics_, false); }
  // A picture of the next frame is to be written ("app.screenshot=FILE", "panel.picture=..").
  struct Picture {
    std::string file;   // empty: none is
    std::string panel;  // by its id; empty: all of the screen
  };
  Picture take_screenshot() { return std::exchange(due_picture_, {}); }
  // Where a panel lies on the screen, in ImGui's units; nothing: it is not drawn.
  std::optional<ImVec4> rectangle_of(const std::string& panel);  // left, top, right, bottom
  // Writes settings and layout, once they have changed.
  void save();
  // After so long without a frame one is due for a panel that is drawn; 0 = for none.
  double seconds_to_look() const;
  // After so long without a frame one is due that writes them; 0 = nothing is to be written.
  double seconds_to_save() const;

  Ui& ui() { return ui_; }
  const std::string& layout() const { return layout_; }
  Panel* panel(std::string_view id);
  void set_content_scale(float scale) { options_.content_scale = scale; }
  void set_graphics(std::string description) { options_.graphics = std::move(description); }

 private:
  friend struct ShellCommands;
  void change_settings(const std::function<void(Settings&)>& change);
  void restore_settings(Settings next);
  void take_settings(Settings next);  // and tells the workbench
  void switch_layout(const std::string& id, bool fresh);
  std::string layout_path(const std::string& id) const;
  void handle_shortcuts();
  void draw_menu_bar();
  void draw_tool_bar();
  void draw_cursor_line();
  void draw_status_bar();
  const std::string& own_figures();
  bool something_changed();
  void follow_failure();
  bool wants_place(const ImGuiWindow* window, const std::string& name) const;
  void draw_panels();
  void draw_panel_menu(Panel& panel);
  void show_front_tabs();
  void draw_messages();

  Ui ui_;
  std::vector<std::unique_ptr<Panel>> panels_;
  std::vector<std::unique_ptr<Overlay>> overlays_;
  ShellOptions options_;
  Settings applied_;
  UndoStack<Settings> undo_;
  std::vector<std::pair<ImGuiKeyChord, std::string>> chords_;  // of command ids
  std::uint64_t chords_version_ = ~std::uint64_t{0};
  std::string layout_ = "step";
  Room room_ = Room::kFull;               // whose arrangement of the layout is shown
  bool drawn_ = false;                    // it is on the screen, worth keeping
  int layout_frame_ = -1;                 // the first one that shows the layout; -1: none has yet
  bool build_layout_ = true;              // in the next frame, from the built-in arrangement
  std::string load_layout_;               // before the next frame, from this file
  std::deque<std::string> focus_panels_;  // by commands, in order
  bool wants_close_ = false, reset_graphics_ = false;
  QuitDialog quit_;
  Picture wanted_picture_, due_picture_;  // of the next frame, without the menu; of this one
  std::string focused_panel_;             // its id; the last one that was
  std::map<ImGuiID, std::pair<ImGuiID, float>> front_tabs_;  // by place: tab, width of its bar
  bool theme_applied_ = false;
  QuietFrames quiet_;
  bool changed_ = true;              // settings or layout, since the last frame
  std::array<double, 4> seen_ = {};  // what panels follow, in the last frame
  bool dirty_ = false;
  std::array<float, 60> frame_times_{};
  std::size_t timed_frames_ = 0;
  std::string own_figures_;  // of the status bar
  double own_figures_at_ = 0;
  std::size_t messages_seen_ = 0;
  std::uint64_t landed_ = 0;  // Workbench::landed() that was followed
  bool on_rows_ = false;      // what was landed on last are rows of a cache
  struct Toast {
    Message message;
    double until = 0;
  };
  std::vector<Toast> toasts_;
  double last_save_ = 0;
};

// The commands of session, cursor, selection, view, layout and settings.
void register_shell_commands(Shell& shell);

}  // namespace attnscope::gui
