// What every command does, as a test of it: run on a session that has ended at step 7, its cursor
// on 7/3/sparse_attention, nothing selected, the layout as built.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "tests/ui/driven_app.h"

namespace attnscope::gui {

struct Trial {
  DrivenApp& app;
  User& user;
  std::string folder;  // for files; ends with the test

  Workbench& bench() { return app.bench(); }
  Place cursor() { return app.bench().cursor(); }
  Selection selection() { return app.bench().selection(); }
  const Settings& settings() { return app->settings(); }
  // Runs it, waits for what it began, and expects it to have succeeded.
  void run(const std::string& id_and_value);
  bool shows(std::string_view text) { return user.screen().find(text) != std::string::npos; }
  // Its window is on the screen, in front of the tabs beside it.
  bool in_front(const char* panel);
  // What the panel draws, as a number: another one when it looks different.
  std::uint64_t picture(const char* panel);
  bool popup_open() const;
  std::string clipboard() const;
};

using Effects = std::map<std::string, std::function<void(Trial&)>>;
Effects session_effects();  // session, cursor, selection
Effects shell_effects();    // panels, layouts, settings, app
Effects panel_effects();    // commands that panels bring
Effects history_effects();  // those of the history panel
Effects overlay_effects();  // scenario files, dialogs, lessons

}  // namespace attnscope::gui
