// indexer_topk: the k best entries of each row of logits, in ascending order of entry. The lowest
// entries of equal scores win; -0 equals 0; a NaN loses to every number.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kBits = 11;
constexpr int kBins = 1 << kBits;
constexpr int kRun = 8;  // neighbouring entries of a thread when the chosen ones are written

// Unsigned numbers in the order of the scores.
__device__ __forceinline__ std::uint32_t order_key(float score) {
  if (score != score) return 0u;
  const std::uint32_t bits = __float_as_uint(score + 0.0f);  // -0 + 0 = 0
  return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

// Finds, from the top, the bin in which the count reaches *left; *left becomes what is still wanted
// of that bin. Each thread holds two neighbouring bins, thread 0 the highest.
__device__ int find_bin(const std::uint32_t* histogram, std::uint32_t* left, int* shared_bin,
                        std::uint32_t* shared_left) {
  constexpr int kPer = kBins / kThreads;
  std::uint32_t mine[kPer];
  std::uint32_t sum = 0;
  const int top = kBins - 1 - static_cast<int>(threadIdx.x) * kPer;
#pragma unroll
  for (int i = 0; i < kPer; ++i) sum += mine[i] = histogram[top - i];
  std::uint32_t before = block_prefix(sum).before;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    if (before < *left && before + mine[i] >= *left) {
      *shared_bin = top - i;
      *shared_left = *left - before;
    }
    before += mine[i];
  }
  __syncthreads();
  *left = *shared_left;
  return *shared_bin;
}

// A block a row.
__global__ void __launch_bounds__(kThreads, 1) indexer_topk_kernel(as_indexer_topk_params p) {
  __shared__ std::uint32_t histogram[kBins];
  __shared__ int shared_bin;
  __shared__ std::uint32_t shared_left;
  const std::int64_t t = blockIdx.x;
  const float* scores = at<float>(p.logits, t);
  std::int32_t* out = at<std::int32_t>(p.indices, t);
  const int k = static_cast<int>(p.indices.shape[1]);
  const int count = *at<std::int32_t>(p.lens, t);
  AS_DEVICE_CHECK(count >= 0 && count <= p.logits.shape[1]);
  if (count <= k) {
    for (int i = static_cast<int>(threadIdx.x); i < k; i += kThreads) out[i] = i < count ? i : -1;
    return;
  }
  // Radix selection of the k-th best key, 11, 11 and 10 bits from the top.
  std::uint32_t threshold = 0;
  std::uint32_t left = static_cast<std::uint32_t>(k);
#pragma unroll
  for (int pass = 0; pass < 3; ++pass) {
    const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
    const std::uint32_t bins = pass == 2 ? (1u << 10) - 1 : kBins - 1;
    const std::uint32_t known = pass == 0 ? 0u : pass == 1 ? ~0u << 21 : ~0u << 10;
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) histogram[i] = 0;
    __syncthreads();
#pragma unroll 8
    for (int c = static_cast<int>(threadIdx.x); c < count; c += kThreads) {
      const std::uint32_t key = order_key(scores[c]);
      if ((key & known) == threshold) atomicAdd(&histogram[(key >> shift) & bins], 1u);
    }
    __syncthreads();
    const int bin = find_bin(histogram, &left, &shared_bin, &shared_left);
    threshold |= static_cast<std::uint32_t>(bin) << shift;
    __syncthreads();
  }
  // Everything above the threshold, and the first `left` entries equal to it, in order.
  std::uint32_t written = 0;
  std::uint32_t ties = 0;
  for (int base = 0; base < count; base += kThreads * kRun) {
    const int first = base + static_cast<int>(threadIdx.x) * kRun;
    std::uint32_t above = 0, tie = 0;  // bits, by entry
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (first + i >= count) continue;
      const std::uint32_t key = order_key(scores[first + i]);
      above |= (key > threshold ? 1u : 0u) << i;
      tie |= (key == threshold ? 1u : 0u) << i;
    }
    // Both counts in one prefix: at most 8192 each.
    const Prefix prefix = block_prefix(static_cast<std::uint32_t>(__popc(above)) << 16 |
                                       static_cast<std::uint32_t>(__popc(tie)));
    std::uint32_t tie_rank = ties + (prefix.before & 0xffffu);
    std::uint32_t to = written + (prefix.before >> 16) + min(tie_rank, left) - min(ties, left);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const bool is_tie = (tie >> i & 1u) != 0u;
      if ((above >> i & 1u) != 0u || (is_tie && tie_rank < left)) out[to++] = first + i;
      if (is_tie) ++tie_rank;
    }
    const std::uint32_t ties_after = ties + (prefix.total & 0xffffu);
    written += (prefix.total >> 16) + min(ties_after, left) - min(ties, left);
    ties = ties_after;
    if (written >= static_cast<std::uint32_t>(k)) break;
  }
}

}  // namespace

int indexer_topk(const as_indexer_topk_params& p, const Launch& launch) {
  const std::int64_t tokens = p.logits.shape[0];
  if (tokens == 0 || p.indices.shape[1] == 0) return 0;
  indexer_topk_kernel<<<static_cast<unsigned>(tokens), kThreads, 0,
                        static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
