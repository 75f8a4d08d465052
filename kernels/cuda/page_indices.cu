// page_indices: the blocks of all sequences one after another. A block a sequence, which adds up
// the pages of those before it; one block more for what stands behind the last page.
#include "kernels/cuda/helper_ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

using I64 = std::int64_t;

constexpr int kThreads = 128;

__device__ __forceinline__ int pages_of(const as_page_indices_params& p, I64 r) {
  const I64 length = *at<std::int32_t>(p.seq_lens, r);
  return static_cast<int>((length + p.block_size - 1) / p.block_size);
}

__global__ void page_indices_kernel(as_page_indices_params p) {
  __shared__ int before;
  const I64 r = blockIdx.x, sequences = p.table.shape[0];
  if (threadIdx.x == 0) before = 0;
  __syncthreads();
  for (I64 i = threadIdx.x; i < r; i += kThreads) atomicAdd(&before, pages_of(p, i));
  __syncthreads();
  const I64 first = before;
  if (threadIdx.x == 0) *at<std::int32_t>(p.indptr, r) = before;
  if (r == sequences) {
    for (I64 i = first + threadIdx.x; i < p.indices.shape[0]; i += kThreads) {
      *at<std::int32_t>(p.indices, i) = -1;
    }
    return;
  }
  const int pages = pages_of(p, r);
  AS_DEVICE_CHECK(pages >= 0 && pages <= p.table.shape[1]);
  AS_DEVICE_CHECK(first + pages <= p.indices.shape[0]);
  for (I64 c = threadIdx.x; c < pages; c += kThreads) {
    *at<std::int32_t>(p.indices, first + c) = *at<std::int32_t>(p.table, r, c);
  }
  if (threadIdx.x == 0) {
    const I64 length = *at<std::int32_t>(p.seq_lens, r);
    *at<std::int32_t>(p.last_page_len, r) =
        length == 0 ? 0 : static_cast<std::int32_t>((length - 1) % p.block_size + 1);
  }
}

}  // namespace

int page_indices(const as_page_indices_params& p, const Launch& launch) {
  const auto blocks = static_cast<unsigned>(p.table.shape[0] + 1);
  page_indices_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
