// workspace_attention: sparse attention over rows that have been gathered before.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/helper_ops.h"

namespace attnscope::cuda {
namespace {

// The same call over a cache whose rows are values.
as_sparse_attention_params as_cache_call(const as_workspace_attention_params& p) {
  as_sparse_attention_params call{};
  call.q = p.q;
  call.cache.data = p.rows;
  call.cache.record = AS_RECORD_LATENT;
  call.cache.addressing = AS_LOGICAL;
  call.cache.width = AS_HEAD_DIM;
  call.indices = p.indices;
  call.topk_length = p.topk_length;
  call.sinks = p.sinks;
  call.o = p.o;
  call.lse = p.lse;
  call.scale = p.scale;
  return call;
}

}  // namespace

std::size_t workspace_bytes(const as_workspace_attention_params& p, const Gpu& gpu) {
  return portable::parts_bytes(as_cache_call(p), portable::splits_for(as_cache_call(p), gpu));
}

int workspace_attention(const as_workspace_attention_params& p, const Launch& launch) {
  return portable::attend<portable::Source::kValues>(as_cache_call(p), launch);
}

}  // namespace attnscope::cuda
