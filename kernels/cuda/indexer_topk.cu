// indexer_topk: the k best entries of each row of logits, in ascending order of entry. The lowest
// entries of equal scores win; -0 equals 0; a NaN loses to every number.
//
// Up to 2048 of them, where a block may have 97 KB of shared memory, by topk_select.cuh, else by a
// kernel that reads the row once a pass.
#include <algorithm>

#include "kernels/cuda/topk_select.cuh"

namespace attnscope::cuda {
namespace {

using topk::kThreads;
using topk::order_key;

constexpr int kBits = 11;
constexpr int kBins = 1 << kBits;
constexpr int kRun = 8;  // neighbouring entries of a thread when the chosen ones are written

struct Found {
  std::uint32_t left;
  int bin;
};

// Finds, from the top, the bin in which the count reaches left; `left` becomes what is still wanted
// of that bin. Each thread holds two neighbouring bins, thread 0 the highest.
__device__ Found find_bin(const std::uint32_t* histogram, std::uint32_t left) {
  constexpr int kPer = kBins / kThreads;
  __shared__ Found found;
  std::uint32_t mine[kPer];
  std::uint32_t sum = 0;
  const int top = kBins - 1 - static_cast<int>(threadIdx.x) * kPer;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    mine[i] = histogram[top - i];
    sum += mine[i];
  }
  std::uint32_t before = block_prefix(sum).before;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    if (before < left && before + mine[i] >= left) found = {left - before, top - i};
    before += mine[i];
  }
  __syncthreads();
  return found;
}

// Any number of entries of a row of any length, for a block.
__global__ void __launch_bounds__(kThreads, 1) many_kernel(as_indexer_topk_params p) {
  __shared__ std::uint32_t histogram[kBins];
  const std::int64_t t = blockIdx.x;
  const float* scores = at<float>(p.logits, t);
  std::int32_t* out = at<std::int32_t>(p.indices, t);
  const int k = static_cast<int>(p.indices.shape[1]);
  const int count = *at<std::int32_t>(p.lens, t);
  AS_DEVICE_CHECK(count >= 0 && count <= p.logits.shape[1]);
  const int tid = static_cast<int>(threadIdx.x);
  if (count <= k) {
    for (int i = tid; i < k; i += kThreads) out[i] = i < count ? i : -1;
    return;
  }
  // Radix selection of the k-th best key, 11, 11 and 10 bits from the top.
  std::uint32_t threshold = 0;
  auto left = static_cast<std::uint32_t>(k);
#pragma unroll
  for (int pass = 0; pass < 3; ++pass) {
    const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
    const std::uint32_t bins = pass == 2 ? (1u << 10) - 1 : kBins - 1;
    const std::uint32_t known = pass == 0 ? 0u : pass == 1 ? ~0u << 21 : ~0u << 10;
    for (int i = tid; i < kBins; i += kThreads) histogram[i] = 0;
    __syncthreads();
#pragma unroll 8
    for (int c = tid; c < count; c += kThreads) {
      const std::uint32_t key = order_key(scores[c]);
      if ((key & known) == threshold) atomicAdd(&histogram[(key >> shift) & bins], 1u);
    }
    __syncthreads();
    const Found found = find_bin(histogram, left);
    left = found.left;
    threshold |= static_cast<std::uint32_t>(found.bin) << shift;
  }
  // Everything above the threshold, and the first `left` entries equal to it, in order.
  std::uint32_t written = 0, ties = 0;
  for (int base = 0; written < static_cast<std::uint32_t>(k); base += kThreads * kRun) {
    const int first = base + tid * kRun;
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
  }
}

}  // namespace

int indexer_topk(const as_indexer_topk_params& p, const Launch& launch) {
  const std::int64_t rows = p.logits.shape[0], columns = p.logits.shape[1];
  const std::int64_t k = p.indices.shape[1];
  if (rows == 0 || k == 0) return 0;
  constexpr std::int64_t kOf4 = 4 * kThreads, kOf8 = 8 * kThreads, kOf16 = 16 * kThreads;
  if (columns <= kOf4) return topk::launch<1, 4, false>(p, launch);
  if (columns <= kOf8) return topk::launch<1, 8, false>(p, launch);
  if (columns <= kOf16) {
    return launch.gpu.hopper && rows <= std::min<std::int64_t>(8, topk::clusters_at_once<8>())
               ? topk::launch<8, 4, false>(p, launch)
               : topk::launch<1, 16, false>(p, launch);
  }
  if (k > topk::kMostK || columns > topk::kMostColumns ||
      launch.gpu.shared_memory < sizeof(topk::Shared<topk::kMostPieces, true>)) {
    many_kernel<<<static_cast<unsigned>(rows), kThreads, 0,
                  static_cast<cudaStream_t>(launch.stream)>>>(p);
    return launch_status();
  }
  // As many blocks a row as let all rows run at once.
  if (launch.gpu.hopper) {
    if (columns <= 8 * kOf4 && rows <= topk::clusters_at_once<8>()) {
      return topk::launch<8, 4, false>(p, launch);
    }
    if (rows <= topk::clusters_at_once<16>()) {
      return columns <= 16 * kOf4 ? topk::launch<16, 4, false>(p, launch)
                                  : topk::launch<16, 4, true>(p, launch);
    }
    if (rows <= topk::clusters_at_once<8>()) {
      return columns <= 8 * kOf8 ? topk::launch<8, 8, false>(p, launch)
                                 : topk::launch<8, 4, true>(p, launch);
    }
    if (rows <= topk::clusters_at_once<4>()) {
      if (columns <= 4 * kOf8) return topk::launch<4, 8, false>(p, launch);
      return columns <= 4 * kOf16 ? topk::launch<4, 16, false>(p, launch)
                                  : topk::launch<4, 4, true>(p, launch);
    }
    if (rows <= topk::clusters_at_once<2>()) {
      return columns <= 2 * kOf16 ? topk::launch<2, 16, false>(p, launch)
                                  : topk::launch<2, 4, true>(p, launch);
    }
  }
  return topk::launch<1, 4, true>(p, launch);
}

}  // namespace attnscope::cuda
