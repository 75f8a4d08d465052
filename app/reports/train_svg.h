// Curves of trainings as a drawing: what the panel Training shows, of several seeds together.
#pragma once

#include <string>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

// Of folders of trainings of one model: a chart for each figure of model.csv and of indexer.csv, a
// line for each training and curve. AS_BAD_INPUT names a table that is missing or is none.
Result<std::string> train_svg(const std::string& model, const std::vector<std::string>& folders);

}  // namespace attnscope
