// sparse_attention for tokens that prefill, where its params have `prefill`: rows that they list
// are gathered and dequantised once, and attended over as workspace_attention does. All requests of
// the step share one workspace here: a slot has one row, whoever lists it.
#pragma once

#include <cstddef>

#include "kernels/cuda/ops.h"

namespace attnscope::cuda {

// Of the workspace that gathered_attention() wants beside what `direct` does.
std::size_t gathered_bytes(const as_sparse_attention_params& p, std::size_t direct, const Gpu& gpu);

// direct: attention over the caches, of params without `prefill`.
int gathered_attention(const as_sparse_attention_params& p, const Launch& launch,
                       int (*direct)(const as_sparse_attention_params& p, const Launch& launch));

}  // namespace attnscope::cuda
