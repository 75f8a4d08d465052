// ref.model of a scenario with a model of absorbed MLA.
#pragma once

#include <memory>

#include "engine/config/scenario.h"
#include "kernels/params/lane.h"
#include "reference/model_mla.h"

namespace attnscope {

// What its configuration says of attention.
reference::MlaNumbers mla_numbers(const ModelConfig& config);

Result<std::unique_ptr<reference::ModelReference>> mla_reference(const Scenario& scenario,
                                                                 const as_threads* threads);

}  // namespace attnscope
