// All shortcuts on one sheet, by group.
#pragma once

#include <string>
#include <vector>

#include "app/gui/dialog.h"
#include "app/gui/overlay.h"

namespace attnscope::gui {

class KeysSheet : public Overlay {
 public:
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;

 private:
  struct Line {
    std::string title, keys;
  };
  struct Group {
    std::string name;
    std::vector<Line> lines;
  };
  void refresh(const Ui& ui);
  static void draw_group(const Group& group);

  Dialog dialog_;
  std::string filter_;
  std::vector<Group> groups_;
};

}  // namespace attnscope::gui
