// indexer_logits with Hopper's own instructions.
#pragma once

#include "kernels/cuda/ops.h"

namespace attnscope::cuda::hopper {

bool takes(const as_indexer_logits_params& p, const Gpu& gpu);
int indexer_logits(const as_indexer_logits_params& p, const Launch& launch);

// Pages of 64 keys.
bool takes_pages(const as_indexer_logits_params& p, const Gpu& gpu);
int page_logits(const as_indexer_logits_params& p, const Launch& launch);

}  // namespace attnscope::cuda::hopper
