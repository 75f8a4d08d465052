// sparse_attention and sparse_mla_attention with Hopper's own instructions.
#pragma once

#include "kernels/cuda/ops.h"

namespace attnscope::cuda::hopper {

bool takes(const as_sparse_attention_params& p, const Gpu& gpu);
bool takes(const as_sparse_mla_attention_params& p, const Gpu& gpu);
// What the functions below take in the place of the latter.
as_sparse_attention_params as_sparse_call(const as_sparse_mla_attention_params& p);
// Blocks that 64 heads of a token's tiles are split over, where no plan says it; whether they are a
// cluster, which leaves no parts in memory; whether they are blocks of 16 heads of hopper_few.cu.
struct Split {
  int blocks = 1;
  bool cluster = false;
  bool few = false;
};
Split split_of(const as_sparse_attention_params& p, const Gpu& gpu);
int sparse_attention(const as_sparse_attention_params& p, const Launch& launch);

}  // namespace attnscope::cuda::hopper
