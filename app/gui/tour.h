// The first minute: five notes, each beside the panel it speaks of. By itself on the very first
// start, later on demand.
#pragma once

#include <optional>

#include "app/gui/bubble.h"
#include "app/gui/overlay.h"

namespace attnscope::gui {

class Tour : public Overlay {
 public:
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;

 private:
  // What the user does in a step is seen by a change since it began.
  struct Before {
    Place cursor;
    Selection selection;
    std::string planted;
  };
  void go(const Ui& ui, int step);
  void finish(Ui& ui);
  bool done(const Ui& ui) const;

  Bubble bubble_;
  bool asked_ = false;  // whether this is the first start
  int step_ = -1;       // -1 = not shown
  bool done_ = false;
  bool palette_seen_ = false;
  Before before_;
};

}  // namespace attnscope::gui
