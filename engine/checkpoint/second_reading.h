// A checkpoint read a second time, tensor by tensor, and held against the weights that a session
// runs on. It shares no code with the loader: it parses headers and finds tensors by itself,
// decodes formats by their definitions and says of every value what must have become of it.
//
//   same bits          BF16 as bf16, F32 as F32 (attn_sink, ape), codes and scales as they are
//   rounded once       F64, F32, F16, and FP8 times its block's scale, to bf16; F64 to F32
//   quantised          what the switch projections=fp8 asks for and the file has in another format
//   dealt out          rows or columns of a rank (family/tensor_parallel.h)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/model_config.h"
#include "engine/trace/tap_result.h"

namespace attnscope {

// A result for every tensor that is not what the file has: the op that reads it, its layer, its
// published name and the first value that differs. used: what the loader says it read, asked only
// for names that this reading does not know. An error: the file cannot be read again.
Result<std::vector<TapResult>> check_loaded(
    const std::string& folder, const ModelConfig& whole, const TensorParallel& parallel,
    const std::vector<TensorUse>& used, const std::vector<std::shared_ptr<const Weights>>& ranks);

// A checkpoint that was just written, read back: every tensor is what the weights are, in FP8 the
// codes nearest to them under the smallest scale that holds their block. An error: one is not.
Result<void> check_exported(const std::string& folder, const ModelConfig& config,
                            const Weights& weights);

}  // namespace attnscope
