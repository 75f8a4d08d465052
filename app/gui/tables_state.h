// Panels that show the tables of a step: what stands in their place where there are none.
#pragma once

#include "app/gui/data_table.h"
#include "app/gui/panel.h"

namespace attnscope::gui {

// The step whose tables are to be shown; nullptr, with the reason drawn, where there are none.
// what: "The block tables" (of this step are no longer kept), "The plan" (.. is ..).
const StepTrace* step_with_tables(Ui& ui, const char* what);

// The step under the cursor; nullptr, with the reason drawn, without one. gone: what is said where
// its tensors are not kept.
const StepTrace* kept_step(Ui& ui, const char* gone, CaptureLevel needs = CaptureLevel::kFull);

// Why there is no trace under the cursor, of a step that did not run or whose tensors are gone.
// so: "there is nothing to compare".
std::string no_trace(const Workbench& bench, const char* so);

// The id of a block in a table, in the colour of the request that holds it; below 0 it has none.
TableCell block_cell(const StepTrace& step, std::int32_t block);

}  // namespace attnscope::gui
