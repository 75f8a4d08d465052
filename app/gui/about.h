// What this program is, what it is made of, and what its model leaves out.
#pragma once

#include "app/gui/dialog.h"
#include "app/gui/overlay.h"

namespace attnscope::gui {

class About : public Overlay {
 public:
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;

 private:
  Dialog dialog_;
};

}  // namespace attnscope::gui
