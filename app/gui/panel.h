// One panel of the screen: a dockable window that follows the cursor and the selection.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/workbench/command_registry.h"
#include "app/workbench/settings.h"
#include "app/workbench/workbench.h"

namespace attnscope::gui {

// What a panel gets to work with. Settings change through commands, so that undo knows them.
struct Ui {
  Workbench& bench;
  CommandRegistry& commands;
  Settings& settings;
  // Runs a command and shows its error as a message. The way panels act.
  void run(std::string_view id_and_value) {
    if (auto ok = commands.run(id_and_value); !ok) {
      bench.say(Message::Kind::kError, ok.error().text());
    }
  }
};

class Panel {
 public:
  Panel(const char* id, const char* title) : id_(id), title_(title) {}
  virtual ~Panel() = default;
  const char* id() const { return id_; }  // "block_tables": command panel.block_tables, layouts
  const char* title() const { return title_; }  // of the tab
  // Commands of its own, once. The registry and everything in `ui` outlive the panel's commands.
  virtual void register_commands(Ui&) {}
  // Inside its window.
  virtual void draw(Ui& ui) = 0;
  // Wants to be redrawn without an event (an animation is running); asked while it is drawn.
  virtual bool animating() const { return false; }
  // Why what it computed last, beside the session, came to nothing; empty: it did not.
  virtual std::string failure() const { return {}; }
  // While it is drawn: after so many seconds without a frame one is due, as it shows what changes
  // outside; 0 = none is.
  virtual double seconds_to_look() const { return 0; }
  // The window fits its contents and has no scrollbar of its own when false.
  virtual bool scrolls() const { return true; }

  // A sentence on what would be lost if the app ended now; empty: nothing.
  virtual std::string unsaved(const Ui&) { return {}; }

  bool open = true;
  bool drawn = false;  // in the last frame: open, and not behind another tab

 private:
  const char* id_;
  const char* title_;
};

}  // namespace attnscope::gui
