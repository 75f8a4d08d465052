// What a program without paged kernels does: gather the pages of a request, then libtorch's
// scaled_dot_product_attention. Measured beside ours, no reference.
#pragma once

#include "kernels/params/paged_params.h"
#include "reference/torch/module.h"

namespace attnscope::reference {

// Fills p.o. Caches of bf16 rows, [rows][heads] in pages without gaps; causal, no window, cap,
// sink. The tokens of a request are neighbours. fp32: products in fp32 instead of bf16.
bool torch_paged_sdpa(const as_paged_attention_params* p, bool fp32, TorchFailure* failure);

}  // namespace attnscope::reference
