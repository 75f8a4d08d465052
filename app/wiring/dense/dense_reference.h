// ref.model of a scenario with a model of dense attention.
#pragma once

#include <memory>

#include "engine/config/scenario.h"
#include "kernels/params/lane.h"
#include "reference/model_dense.h"

namespace attnscope {

// What its configuration says of attention.
reference::DenseNumbers dense_numbers(const ModelConfig& config);

Result<std::unique_ptr<reference::ModelReference>> dense_reference(const Scenario& scenario,
                                                                   const as_threads* threads);

}  // namespace attnscope
