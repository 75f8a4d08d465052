// What blocks of a cluster that share a row of the top-k have in shared memory, and how they add up
// their histograms.
#pragma once

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda::topk {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kBits = 12;
constexpr int kBins = 1 << kBits;
constexpr int kPer = 4;                 // keys of a thread, of a list
constexpr int kList = kPer * kThreads;  // entries that a block keeps
constexpr int kTile = 16;               // entries of a thread in a tile
constexpr int kMostK = kList / 2;       // a list cut to its k best has room for those of a tile
constexpr int kMostPieces = 16;
constexpr int kMostColumns = 1 << 30;  // entries of tiles beyond the end are counted in int

// Unsigned numbers in the order of the scores. A NaN is 1, below -inf; 0 stands for no entry.
__device__ __forceinline__ std::uint32_t order_key(float score) {
  const std::uint32_t bits = __float_as_uint(score + 0.0f);  // -0 + 0 = 0
  const std::uint32_t key =
      bits ^ (static_cast<std::uint32_t>(static_cast<int>(bits) >> 31) | 0x80000000u);
  return score != score ? 1u : key;
}

// Chosen are keys above `key`, and of those equal to it the first `ties`.
struct Cut {
  std::uint32_t key;
  std::uint32_t ties;
};

// Where a scan from the top came to the wanted count: the bin, how many are wanted of it, how many
// it has.
struct Found {
  std::uint32_t bin, left, count;
};

template <int pieces, bool tiled>
struct Shared {
  std::uint32_t histogram[2][kBins];            // in turns; the other one is zeroed
  std::uint32_t total[pieces > 1 ? kBins : 4];  // over all pieces
  std::uint32_t keys[tiled ? kList : 4];        // the list, in order of entry
  std::int32_t entries[tiled ? kList : 4];
  std::uint32_t warp_sum[32];
  std::uint32_t chosen[2][32];                  // by each warp, above << 16 | ties, in turns
  std::uint32_t inbox[pieces > 1 ? kBins : 4];  // this block's share of bins, by piece
  uint2 before[kMostPieces];                    // above and ties of the earlier pieces
  std::uint64_t arrived[3];                     // barriers: inbox, total, before
  Found found;
};

// Stores into shared memory of any block of the cluster that a barrier there counts by bytes.
__device__ __forceinline__ std::uint32_t address_of(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ __forceinline__ void send(std::uint32_t to, uint4 v, std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void send(std::uint32_t to, uint2 v, std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "r"(v.x), "r"(v.y), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0u) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

template <int pieces>
__device__ __forceinline__ int rank_in_cluster() {
  if constexpr (pieces == 1) return 0;
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// Begins what blocks of a cluster send each other; after all_began() a block's barriers are there.
template <int pieces, class Memory>
__device__ __forceinline__ void begin_exchange(Memory& s) {
  if constexpr (pieces > 1) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < 3; ++i) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(&s.arrived[i]))
                     : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  }
}
template <int pieces>
__device__ __forceinline__ void all_began() {
  if constexpr (pieces > 1) asm volatile("barrier.cluster.wait;" ::: "memory");
}

// The histogram over all pieces, in every block's s.total, by stores that the receivers' barriers
// count. Blocks may be in different turns here, so nobody reads another's histogram.
template <int pieces, class Memory>
__device__ void add_up(Memory& s, const std::uint32_t* histogram, std::uint32_t parity) {
  constexpr int kShare = kBins / pieces, kParts = pieces < 4 ? pieces : 4, kLanes = 32 / kParts;
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32;
  const int rank = rank_in_cluster<pieces>();
  const std::uint32_t inbox = address_of(s.inbox), total = address_of(s.total);
  const std::uint32_t arrived = address_of(s.arrived);
#pragma unroll
  for (int i = 0; i < kBins; i += 4 * kThreads) {
    const int bin = i + 4 * tid, owner = bin / kShare;
    const auto to = static_cast<std::uint32_t>(4 * (rank * kShare + bin % kShare));
    send(address_in(inbox + to, owner), *reinterpret_cast<const uint4*>(histogram + bin),
         address_in(arrived, owner));
  }
  if (tid == 0) {
    expect(arrived, 4 * kBins);
    expect(arrived + 8, 4 * kBins);
  }
  wait(arrived, parity);
  const int part = lane / kLanes;
#pragma unroll 1
  for (int q = warp * kLanes + lane % kLanes; q < kShare / 4; q += kThreads / kParts) {
    uint4 sum = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int r = 0; r < pieces; r += kParts) {
      const uint4 one = *reinterpret_cast<const uint4*>(s.inbox + (r + part) * kShare + 4 * q);
      sum = make_uint4(sum.x + one.x, sum.y + one.y, sum.z + one.z, sum.w + one.w);
    }
#pragma unroll
    for (int step = kLanes; step < 32; step *= 2) {
      sum.x += __shfl_xor_sync(kAllLanes, sum.x, step);
      sum.y += __shfl_xor_sync(kAllLanes, sum.y, step);
      sum.z += __shfl_xor_sync(kAllLanes, sum.z, step);
      sum.w += __shfl_xor_sync(kAllLanes, sum.w, step);
    }
    const auto to = static_cast<std::uint32_t>(4 * (rank * kShare + 4 * q));
#pragma unroll
    for (int r = 0; r < pieces; r += kParts) {
      send(address_in(total + to, r + part), sum, address_in(arrived + 8, r + part));
    }
  }
  wait(arrived + 8, parity);
}

// What the earlier pieces chose: above the cut, and ties.
template <int pieces, class Memory>
__device__ __forceinline__ uint2 chosen_before(Memory& s, std::uint32_t above, std::uint32_t ties) {
  if constexpr (pieces == 1) {
    return make_uint2(0, 0);
  } else {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const int rank = rank_in_cluster<pieces>();
    const std::uint32_t arrived = address_of(&s.arrived[2]);
    if (warp == 0 && lane > rank && lane < pieces) {
      send(address_in(address_of(&s.before[rank]), lane), make_uint2(above, ties),
           address_in(arrived, lane));
    }
    if (rank > 0) {
      if (threadIdx.x == 0) expect(arrived, static_cast<std::uint32_t>(8 * rank));
      wait(arrived, 0);
    }
    const uint2 before = lane < rank ? s.before[lane] : make_uint2(0, 0);
    return make_uint2(__reduce_add_sync(kAllLanes, before.x),
                      __reduce_add_sync(kAllLanes, before.y));
  }
}

}  // namespace attnscope::cuda::topk
