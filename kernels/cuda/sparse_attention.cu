// sparse_attention: every head of a token over its window rows and its compressed rows, with sink.
#include "kernels/cuda/attention.cuh"

namespace attnscope::cuda {

std::size_t workspace_bytes(const as_sparse_attention_params& p, const Gpu& gpu) {
  return portable::parts_bytes(p, gpu);
}

int sparse_attention(const as_sparse_attention_params& p, const Launch& launch) {
  return portable::attend<portable::Source::kRecords>(p, launch);
}

}  // namespace attnscope::cuda
