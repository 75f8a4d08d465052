// Heads x rows of one token's attention weight: what Top-k shows of a model that selects nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <tuple>

#include "app/gui/heat_map.h"
#include "app/gui/panel.h"
#include "app/views/mass_view.h"

namespace attnscope::gui {

class MassMap {
 public:
  void draw(Ui& ui, const StepTrace& step);
  bool busy() const { return heat_map_.busy(); }

 private:
  void select(Workbench& bench, std::int64_t head, std::int64_t column) const;

  // What the view was made from: attention, row, head. The snapshot keeps the op alive.
  std::tuple<const OpTrace*, std::int64_t, int> key_{nullptr, -2, -2};
  std::shared_ptr<const Snapshot> held_;
  std::uint64_t version_ = 0;
  MassView view_;
  std::string note_;
  HeatMap heat_map_;
};

}  // namespace attnscope::gui
