// sparse_attention of few tokens: a kernel that has little between its start and its end.
#pragma once

#include <cstdint>

#include "kernels/cuda/ops.h"

namespace attnscope::cuda::hopper::few {

// A block has 16 heads of a token and every n-th eight entries of both lists; the n blocks of those
// heads are a cluster. What n is best, and what that takes: in tenths of a microsecond, beside the
// costs of split_of() in hopper_attention.cu. 0: no number of blocks fits on the GPU at once, and a
// token has more than one group of 16 heads.
struct Choice {
  int blocks = 0;
  std::int64_t cost = 0;
};
// Of so many tokens.
Choice choose(const as_sparse_attention_params& p, std::int64_t tokens, const Gpu& gpu);

// In the near-exact form (hopper_tile.cuh): no plan, a scale above 0.
int attention(const as_sparse_attention_params& p, const Launch& launch, int blocks);

}  // namespace attnscope::cuda::hopper::few
