// The tensors of a scenario's model under their published names, as `model export` would write them
// or as the files of a checkpoint have them: what ref.model is made of.
#pragma once

#include <memory>

#include "engine/config/scenario.h"
#include "kernels/params/lane.h"
#include "reference/model.h"

namespace attnscope {

struct ModelTensors {
  reference::TensorSource source;
  std::shared_ptr<const void> owner;  // of what the source points to
};

// Of the whole model, whichever rank runs. bf16: whether ref.model knows a tensor that runs in
// bf16, however it is published.
Result<ModelTensors> model_tensors(const Scenario& scenario, const as_threads* threads,
                                   bool (*bf16)(const std::string& name));

}  // namespace attnscope
