// Panels that show the tables of a step: what stands in their place where there are none.
#pragma once

#include "app/gui/panel.h"

namespace attnscope::gui {

// The step whose tables are to be shown; nullptr, with the reason drawn, where there are none.
// what: "The block tables" (of this step are no longer kept).
const StepTrace* step_with_tables(Ui& ui, const char* what);

}  // namespace attnscope::gui
