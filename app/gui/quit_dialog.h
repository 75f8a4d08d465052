// Leaving the app while something would be lost by it: edits of a form that no file has.
#pragma once

#include <string>
#include <vector>

#include "app/gui/dialog.h"
#include "app/gui/panel.h"

namespace attnscope::gui {

class QuitDialog {
 public:
  // what: a sentence each.
  void ask(std::vector<std::string> what);
  // Once a frame. True when the user wants to leave all the same.
  bool draw(Ui& ui);

 private:
  Dialog dialog_;
  std::vector<std::string> what_;
};

}  // namespace attnscope::gui
