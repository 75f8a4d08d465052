// Settings: looks, memory, shortcuts. Every change is a command, so that undo knows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/gui/dialog.h"
#include "app/gui/overlay.h"

namespace attnscope::gui {

class SettingsDialog : public Overlay {
 public:
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;

 private:
  void draw_looks(Ui& ui);
  void draw_scale(Ui& ui);
  // A number that a command takes.
  struct Budget {
    std::string text, error;
    bool typed = false;
  };
  static void draw_budget(Ui& ui, Budget& budget, const char* command, std::int64_t now,
                          const char* unit, const char* help);
  void draw_shortcuts(Ui& ui);
  void draw_shortcut(Ui& ui, const Command& command);
  void capture(Ui& ui);
  void set_shortcut(Ui& ui, const std::string& id, const std::string& keys);

  Dialog dialog_;
  int page_ = 0;
  float scale_ = 0;  // percent while the slider is held; 0 = it is not
  Budget traces_, rewind_points_, events_;
  std::string filter_;
  std::string capturing_;  // id of the command whose keys are being pressed
  std::string conflict_keys_, conflict_id_, conflict_with_, shortcut_error_;
  std::vector<std::string> themes_;
};

}  // namespace attnscope::gui
