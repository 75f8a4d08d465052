// sequence_table: the lists of a batch. A block a sequence, which adds up the tokens of those
// before it; one block more for what stands behind the last token.
#include "kernels/cuda/helper_ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

using I64 = std::int64_t;

constexpr int kThreads = 128;

__global__ void sequence_table_kernel(as_sequence_table_params p) {
  __shared__ int before;
  const I64 r = blockIdx.x, sequences = p.query_lens.shape[0], tokens = p.token_to_seq.shape[0];
  if (threadIdx.x == 0) before = 0;
  __syncthreads();
  for (I64 i = threadIdx.x; i < r; i += kThreads) {
    atomicAdd(&before, *at<std::int32_t>(p.query_lens, i));
  }
  __syncthreads();
  const I64 first = before;
  if (threadIdx.x == 0) *at<std::int32_t>(p.cu_seqlens, r) = before;
  if (r == sequences) {
    for (I64 t = first + threadIdx.x; t < tokens; t += kThreads) {
      *at<std::int32_t>(p.token_to_seq, t) = -1;
      *at<I64>(p.positions, t) = 0;
    }
    return;
  }
  const I64 query = *at<std::int32_t>(p.query_lens, r);
  const I64 computed = *at<std::int32_t>(p.computed, r), length = computed + query;
  AS_DEVICE_CHECK(query >= 0 && computed >= 0 && first + query <= tokens);
  AS_DEVICE_CHECK(length <= p.blocks.shape[1] * p.block_size);
  if (threadIdx.x == 0) *at<std::int32_t>(p.seq_lens, r) = static_cast<std::int32_t>(length);
  for (I64 c = threadIdx.x; c < p.blocks.shape[1]; c += kThreads) {
    *at<std::int32_t>(p.blocks, r, c) =
        c * p.block_size < length ? static_cast<std::int32_t>(c) : -1;
  }
  for (I64 i = threadIdx.x; i < query; i += kThreads) {
    *at<std::int32_t>(p.token_to_seq, first + i) = static_cast<std::int32_t>(r);
    *at<I64>(p.positions, first + i) = computed + i;
  }
}

}  // namespace

int sequence_table(const as_sequence_table_params& p, const Launch& launch) {
  const auto blocks = static_cast<unsigned>(p.query_lens.shape[0] + 1);
  sequence_table_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
