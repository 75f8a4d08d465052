// The cache panel's tab of the slab: one block as each group lays it out, a bar a group.
#pragma once

#include <memory>

#include "app/gui/panel.h"
#include "app/views/slab_view.h"

namespace attnscope::gui {

class SlabMap {
 public:
  void draw(Ui& ui);

 private:
  void draw_bars(Ui& ui);

  std::shared_ptr<const SessionInfo> info_;  // that the view is of
  SlabView view_;
};

}  // namespace attnscope::gui
