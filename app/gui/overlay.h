// What lies over the panels: palette, dialogs, tour. Drawn after them, on top.
#pragma once

#include <memory>
#include <vector>

#include "app/gui/panel.h"

namespace attnscope::gui {

class Overlay {
 public:
  virtual ~Overlay() = default;
  virtual void register_commands(Ui&) {}
  // Once a frame, whether or not there is anything to show.
  virtual void draw(Ui& ui) = 0;
  virtual bool animating() const { return false; }
};

std::vector<std::unique_ptr<Overlay>> make_overlays();

std::unique_ptr<Overlay> make_palette();          // Ctrl+P: command "palette.open"
std::unique_ptr<Overlay> make_settings_dialog();  // "settings.open": theme, scale, shortcuts, ..
std::unique_ptr<Overlay> make_file_dialog();      // "scenario.open", "scenario.save_as"
std::unique_ptr<Overlay> make_record_dialog();    // "capture.record"
std::unique_ptr<Overlay> make_keys_sheet();       // "help.keys": all shortcuts on one sheet
std::unique_ptr<Overlay> make_tour();             // "help.tour"; by itself on the first run
std::unique_ptr<Overlay> make_lesson();           // "lesson.plant=MUTANT", "lesson.remove", ..
std::unique_ptr<Overlay> make_about();            // "help.about"

}  // namespace attnscope::gui
