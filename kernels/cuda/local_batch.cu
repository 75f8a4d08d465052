// local_batch: the step cut at the borders of chunks.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

using I64 = std::int64_t;

constexpr int kThreads = 128;

// Sequences that a request with tokens computed .. length - 1 in the step is cut into.
__device__ I64 sequences_of(const as_local_batch_params& p, I64 request) {
  const I64 query = *at<std::int32_t>(p.query_start_loc, request + 1) -
                    *at<std::int32_t>(p.query_start_loc, request);
  if (query == 0) return 0;
  const I64 length = *at<std::int32_t>(p.seq_lens, request);
  return (length - 1) / p.chunk - (length - query) / p.chunk + 1;
}

// One block a token, which is also row t of what sequences have: it counts the sequences of all
// requests and of those before its own.
__global__ void local_batch_kernel(as_local_batch_params p) {
  __shared__ unsigned before, all;
  const I64 t = blockIdx.x, tokens = p.token_to_req.shape[0], requests = p.tables.shape[1];
  const I64 request = t < tokens ? *at<std::int32_t>(p.token_to_req, t) : -1;
  if (threadIdx.x == 0) before = all = 0;
  __syncthreads();
  for (I64 r = threadIdx.x; r < requests; r += kThreads) {
    const auto n = static_cast<unsigned>(sequences_of(p, r));
    atomicAdd(&all, n);
    if (r < request) atomicAdd(&before, n);
  }
  __syncthreads();
  const std::int32_t computed = *at<std::int32_t>(p.query_start_loc, requests);
  const I64 groups = p.local_tables.shape[0], per_chunk = p.local_tables.shape[2];
  if (t == 0 && threadIdx.x == 0) {
    *at<std::int32_t>(p.local_query_start_loc, tokens) = computed;
  }
  if (t >= tokens) return;
  if (t >= all) {  // no sequence has this number
    if (threadIdx.x == 0) {
      *at<std::int32_t>(p.local_query_start_loc, t) = computed;
      *at<std::int32_t>(p.local_seq_lens, t) = 0;
    }
    for (I64 i = threadIdx.x; i < groups * per_chunk; i += kThreads) {
      *at<std::int32_t>(p.local_tables, i / per_chunk, t, i % per_chunk) = -1;
    }
  }
  if (request < 0) {
    if (threadIdx.x == 0) {
      *at<std::int32_t>(p.token_to_seq, t) = -1;
      *at<std::int64_t>(p.local_positions, t) = 0;
    }
    return;
  }
  AS_DEVICE_CHECK(request < requests);
  const I64 first = *at<std::int32_t>(p.query_start_loc, request);
  const I64 query = *at<std::int32_t>(p.query_start_loc, request + 1) - first;
  const I64 length = *at<std::int32_t>(p.seq_lens, request), start = length - query;
  const I64 position = start + (t - first), chunk = position / p.chunk;
  const I64 sequence = before + chunk - start / p.chunk;
  if (threadIdx.x == 0) {
    *at<std::int32_t>(p.token_to_seq, t) = static_cast<std::int32_t>(sequence);
    *at<std::int64_t>(p.local_positions, t) = position - chunk * p.chunk;
  }
  if (t != first && position % p.chunk != 0) return;
  // The first token of its sequence.
  const I64 left = length - chunk * p.chunk, rows = left < p.chunk ? left : I64{p.chunk};
  if (threadIdx.x == 0) {
    *at<std::int32_t>(p.local_query_start_loc, sequence) = static_cast<std::int32_t>(t);
    *at<std::int32_t>(p.local_seq_lens, sequence) = static_cast<std::int32_t>(rows);
  }
  for (I64 i = threadIdx.x; i < groups * per_chunk; i += kThreads) {
    const I64 s = i / per_chunk, c = i % per_chunk, column = chunk * per_chunk + c;
    const bool held = c * p.block_size < rows;
    AS_DEVICE_CHECK(!held || column < p.tables.shape[2]);
    *at<std::int32_t>(p.local_tables, s, sequence, c) =
        held ? *at<std::int32_t>(p.tables, s, request, column) : -1;
  }
}

}  // namespace

int local_batch(const as_local_batch_params& p, const Launch& launch) {
  const I64 tokens = p.token_to_req.shape[0];
  // A block also where there is no token: the end of no sequences is written, too.
  const auto blocks = static_cast<unsigned>(tokens > 0 ? tokens : 1);
  local_batch_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
