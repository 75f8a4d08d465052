// Writes weights as a checkpoint folder with published names and dtypes: config.json,
// model.safetensors.index.json and one shard per layer.
#pragma once

#include <cstdint>
#include <string>

#include "engine/model/model_config.h"
#include "engine/model/weights.h"

namespace attnscope {

// The large projections; all else has one published dtype.
enum class ExportDtype { kBf16, kFp8 };

struct ExportTotals {
  std::int64_t tensors = 0, shards = 0;
  std::uint64_t bytes = 0;     // of all files
  std::int64_t changed = 0;    // values that FP8 does not hold exactly
  std::int64_t in_blocks = 0;  // values of tensors that FP8 holds
};

// `folder` must not exist, or be empty; it appears as a whole. AS_BAD_INPUT names what is in the
// way.
Result<ExportTotals> export_checkpoint(const Weights& weights, const ModelConfig& config,
                                       const std::string& folder, ExportDtype dtype,
                                       const as_threads* threads);

}  // namespace attnscope
