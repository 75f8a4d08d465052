// indexer_topk: the k best entries of each row of logits, in ascending order of entry. The lowest
// entries of equal scores win; -0 equals 0; a NaN loses to every number.
//
// A block takes a row. On Hopper a long row is cut into pieces for a cluster of blocks, which read
// one another's histograms.
#include <cooperative_groups.h>

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

// Blocks of a row: of which this one has a piece, and what the others have in shared memory.
template <bool clustered>
struct Pieces {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ static int count() {
    return clustered ? static_cast<int>(cooperative_groups::this_cluster().num_blocks()) : 1;
  }
  __device__ static int rank() {
    return clustered ? static_cast<int>(cooperative_groups::this_cluster().block_rank()) : 0;
  }
  // What blocks wrote to shared memory before is seen by all of them after.
  __device__ static void meet() {
    if constexpr (clustered) {
      cooperative_groups::this_cluster().sync();
    } else {
      __syncthreads();
    }
  }
  __device__ static std::uint32_t of(std::uint32_t* shared, int rank) {
    if constexpr (clustered)
      return *cooperative_groups::this_cluster().map_shared_rank(shared, rank);
    return *shared;
  }
#else
  __device__ static int count() { return 1; }
  __device__ static int rank() { return 0; }
  __device__ static void meet() { __syncthreads(); }
  __device__ static std::uint32_t of(std::uint32_t* shared, int) { return *shared; }
#endif
};

struct Shared {
  std::uint32_t histogram[3][kBins];  // of this block's piece, one a pass
  std::uint32_t total[kBins];         // of a pass over all pieces: this block's share of the bins
  std::uint32_t above, ties;          // in the piece: better than the k-th best, equal to it
  std::uint32_t left;
  int bin;
};

// Sums of this pass over all pieces, by the block that a share of the bins belongs to.
template <bool clustered>
__device__ void add_up(Shared& shared, std::uint32_t* histogram) {
  const int pieces = Pieces<clustered>::count(), share = kBins / pieces;
  const int first = Pieces<clustered>::rank() * share;
  for (int bin = static_cast<int>(threadIdx.x); bin < share; bin += kThreads) {
    std::uint32_t sum = 0;
    for (int r = 0; r < pieces; ++r) sum += Pieces<clustered>::of(histogram + first + bin, r);
    shared.total[first + bin] = sum;
  }
  Pieces<clustered>::meet();
}

// Finds, from the top, the bin in which the count over all pieces reaches *left; *left becomes what
// is still wanted of that bin. Each thread holds two neighbouring bins, thread 0 the highest.
template <bool clustered>
__device__ int find_bin(Shared& shared, std::uint32_t* histogram, std::uint32_t* left) {
  constexpr int kPer = kBins / kThreads;
  if constexpr (clustered) add_up<clustered>(shared, histogram);
  std::uint32_t* total = clustered ? shared.total : histogram;
  const int share = kBins / Pieces<clustered>::count();
  std::uint32_t mine[kPer];
  std::uint32_t sum = 0;
  const int top = kBins - 1 - static_cast<int>(threadIdx.x) * kPer;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    mine[i] = Pieces<clustered>::of(total + top - i, (top - i) / share);
    sum += mine[i];
  }
  std::uint32_t before = block_prefix(sum).before;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    if (before < *left && before + mine[i] >= *left) {
      shared.bin = top - i;
      shared.left = *left - before;
    }
    before += mine[i];
  }
  __syncthreads();
  *left = shared.left;
  const int bin = shared.bin;
  std::uint32_t better = 0;
#pragma unroll
  for (int i = 0; i < kPer; ++i) better += top - i > bin ? histogram[top - i] : 0u;
  better = __reduce_add_sync(kAllLanes, better);
  if (threadIdx.x % 32 == 0 && better != 0u) atomicAdd(&shared.above, better);
  return bin;
}

template <bool clustered>
__global__ void __launch_bounds__(kThreads, 1) indexer_topk_kernel(as_indexer_topk_params p) {
  using Row = Pieces<clustered>;
  __shared__ Shared shared;
  const int pieces = Row::count(), rank = Row::rank();
  const std::int64_t t = blockIdx.x / static_cast<unsigned>(pieces);
  const float* scores = at<float>(p.logits, t);
  std::int32_t* out = at<std::int32_t>(p.indices, t);
  const int k = static_cast<int>(p.indices.shape[1]);
  const int count = *at<std::int32_t>(p.lens, t);
  AS_DEVICE_CHECK(count >= 0 && count <= p.logits.shape[1]);
  const int tid = static_cast<int>(threadIdx.x);
  if (count <= k) {
    if (rank > 0) return;
    for (int i = tid; i < k; i += kThreads) out[i] = i < count ? i : -1;
    return;
  }
  const int begin = static_cast<int>(std::int64_t{count} * rank / pieces);
  const int end = static_cast<int>(std::int64_t{count} * (rank + 1) / pieces);
  for (int i = tid; i < 3 * kBins; i += kThreads) (&shared.histogram[0][0])[i] = 0;
  if (tid == 0) shared.above = 0;
  __syncthreads();
  // Radix selection of the k-th best key, 11, 11 and 10 bits from the top.
  std::uint32_t threshold = 0;
  std::uint32_t left = static_cast<std::uint32_t>(k);
#pragma unroll
  for (int pass = 0; pass < 3; ++pass) {
    const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
    const std::uint32_t bins = pass == 2 ? (1u << 10) - 1 : kBins - 1;
    const std::uint32_t known = pass == 0 ? 0u : pass == 1 ? ~0u << 21 : ~0u << 10;
    std::uint32_t* histogram = shared.histogram[pass];
#pragma unroll 8
    for (int c = begin + tid; c < end; c += kThreads) {
      const std::uint32_t key = order_key(scores[c]);
      if ((key & known) == threshold) atomicAdd(&histogram[(key >> shift) & bins], 1u);
    }
    Row::meet();
    const int bin = find_bin<clustered>(shared, histogram, &left);
    threshold |= static_cast<std::uint32_t>(bin) << shift;
    if (pass == 2 && tid == 0) shared.ties = histogram[bin];
    __syncthreads();
  }
  Row::meet();
  std::uint32_t written = 0, ties = 0;  // by the pieces before
  for (int r = 0; r < rank; ++r) {
    written += Row::of(&shared.above, r);
    ties += Row::of(&shared.ties, r);
  }
  const std::uint32_t done = written + shared.above + min(ties + shared.ties, left);
  written += min(ties, left);
  // Everything above the threshold, and the first `left` entries equal to it, in order.
  for (int base = begin; base < end && written < done; base += kThreads * kRun) {
    const int first = base + tid * kRun;
    std::uint32_t above = 0, tie = 0;  // bits, by entry
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (first + i >= end) continue;
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
  if constexpr (clustered) Row::meet();  // shared memory is there as long as somebody reads it
}

// Blocks of a cluster: long rows, few enough that all blocks run at once.
unsigned pieces_of(std::int64_t tokens, std::int64_t columns, int multiprocessors) {
  constexpr std::int64_t kColumns = 1 << 14;  // of a piece, at least
  unsigned pieces = 1;
  while (pieces < 8 && 2 * pieces * tokens <= multiprocessors && columns >= 2 * pieces * kColumns) {
    pieces *= 2;
  }
  return pieces;
}

}  // namespace

int indexer_topk(const as_indexer_topk_params& p, const Launch& launch) {
  const std::int64_t tokens = p.logits.shape[0];
  if (tokens == 0 || p.indices.shape[1] == 0) return 0;
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  const unsigned pieces =
      launch.gpu.hopper ? pieces_of(tokens, p.logits.shape[1], launch.gpu.multiprocessors) : 1u;
  if (pieces == 1) {
    indexer_topk_kernel<false><<<static_cast<unsigned>(tokens), kThreads, 0, stream>>>(p);
    return launch_status();
  }
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {pieces, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(tokens) * pieces);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, indexer_topk_kernel<true>, p);
}

}  // namespace attnscope::cuda
