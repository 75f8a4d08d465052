// What a program without sparse kernels does on the CPU: gather the listed rows of a batch, turn
// their codes into numbers by a table, then attention with a sink by libtorch's matrix products.
// Measured beside ours, no reference.
#pragma once

#include "kernels/params/attention_params.h"
#include "reference/torch/module.h"

namespace attnscope::reference {

// Fills p.o, not p.lse. Paged caches; every token has full lists without holes. fp32: products in
// fp32 instead of bf16.
bool torch_sparse_sdpa(const as_sparse_attention_params* p, bool fp32, TorchFailure* failure);

}  // namespace attnscope::reference
