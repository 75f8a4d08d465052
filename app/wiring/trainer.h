// A trainer of a model and its tensors: reference/trainer.h by the model's family.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/model/model_config.h"
#include "kernels/params/lane.h"
#include "reference/trainer.h"

namespace attnscope {

// Tokens of an entry that its layers select; 0 = none of them selects, nothing is to be trained.
std::int64_t selected_tokens(const ModelConfig& config);

// checkpoint: a folder, empty = synthetic weights by seed.
Result<std::unique_ptr<reference::Trainer>> make_trainer(const ModelConfig& config,
                                                         std::uint64_t seed,
                                                         const std::string& checkpoint,
                                                         std::int64_t torch_threads,
                                                         const as_threads* threads);

}  // namespace attnscope
