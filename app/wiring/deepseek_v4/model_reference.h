// ref.model of a scenario: made from the numbers of its configuration and the tensors under their
// published names, as `model export` would write them or as the files of a checkpoint have them.
#pragma once

#include <memory>

#include "engine/config/scenario.h"
#include "kernels/params/lane.h"
#include "reference/model.h"

namespace attnscope {

// What its configuration says of attention.
reference::ModelNumbers model_numbers(const ModelConfig& config);

// Of the whole model, whichever rank runs.
Result<std::unique_ptr<reference::ModelReference>> model_reference(const Scenario& scenario,
                                                                   const as_threads* threads);

}  // namespace attnscope
