// A matrix as numbers: only the cells on screen are made, however large it is. Full precision on
// hover.
#pragma once

#include "app/gui/heat_map.h"

namespace attnscope::gui {

class NumberGrid {
 public:
  // Scrolls to the selected cell when it changes.
  HeatMapEvents draw(const char* id, const HeatMapData& data, ImVec2 size,
                     std::int64_t selected_row, std::int64_t selected_column);

 private:
  std::int64_t shown_row_ = -1, shown_column_ = -1;
};

}  // namespace attnscope::gui
