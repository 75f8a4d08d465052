// sparse_attention: every head of a token over its window rows and its compressed rows, with sink.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/cuda/prefill_workspace.h"

namespace attnscope::cuda {
namespace {

int attend_caches(const as_sparse_attention_params& p, const Launch& launch) {
  if (p.q.shape[0] > 0 && hopper::takes(p, launch.gpu)) return hopper::sparse_attention(p, launch);
  return portable::attend<portable::Source::kRecords>(p, launch);
}

}  // namespace

std::size_t workspace_bytes(const as_sparse_attention_params& p, const Gpu& gpu) {
  int splits = 1;  // whose parts lie in memory
  if (hopper::takes(p, gpu)) {
    const hopper::Split split = hopper::split_of(p, gpu);
    if (!split.cluster) splits = split.blocks;
  } else {
    splits = portable::splits_for(p, gpu);
  }
  const std::size_t direct = portable::parts_bytes(p, splits);
  return p.prefill.data != nullptr ? gathered_bytes(p, direct, gpu) : direct;
}

int sparse_attention(const as_sparse_attention_params& p, const Launch& launch) {
  if (p.prefill.data != nullptr) return gathered_attention(p, launch, attend_caches);
  return attend_caches(p, launch);
}

}  // namespace attnscope::cuda
