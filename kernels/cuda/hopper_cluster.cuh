// The blocks of one token's tiles as a cluster: they send each other what they have summed and each
// finishes the heads that it owns. No second kernel, no parts in global memory.
//
// Heads of the token are dealt out in runs of `share`. A part is 512 means in fp16, twice as small
// as rows are there so that none overflows, the largest score in base 2 and the sum of weights: -1
// where no entry was valid, NaN where fp16 does not hold some value of the block. The owner then
// computes its heads once more in fp32. Parts lie where queries and rows were.
#pragma once

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/hopper_compute.cuh"

namespace attnscope::cuda::hopper {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// All threads of the cluster have come; what they stored before is seen.
__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

template <class Rows>
class Exchange {
 public:
  __device__ __forceinline__ explicit Exchange(const Block<Rows>& block)
      : block_(block),
        blocks_(static_cast<int>(gridDim.z)),
        rank_(static_cast<int>(blockIdx.z)),
        share_((block.heads + blocks_ - 1) / blocks_),
        first_(rank_ * share_),
        mine_(heads_of(rank_)) {}

  // Of the block's heads, those that this one owns.
  __device__ __forceinline__ int first() const { return first_; }
  __device__ __forceinline__ int mine() const { return mine_; }

  // A warpgroup's 64 heads by 256 dims, as write_values(); before send().
  __device__ __forceinline__ void leave_values(int group, const float (&values)[kHalf / 2],
                                               const float (&factor)[2]) const {
    const int tid = static_cast<int>(threadIdx.x) % kGroup, lane = tid % 32, warp = tid / 32;
    const std::uint32_t to =
        shared_address(left(16 * warp + lane % 16)) + (group * (kHalf / 8) + lane / 16) * 16;
#pragma unroll
    for (int j = 0; j < kHalf / 8; j += 2) {
      std::uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* from = values + 4 * (j + i / 2) + 2 * (i % 2);
        pairs[i] = half_pair_of(from[0] * factor[i % 2], from[1] * factor[i % 2]);
      }
      store_matrix4(to + j * 16, pairs);
    }
  }
  __device__ __forceinline__ void leave_sums(int head, float best, float sum) const {
    *reinterpret_cast<float2*>(left(head) + kDim * 2) = make_float2(best, sum);
  }

  // By all threads: parts of this block's heads are here afterwards.
  __device__ __forceinline__ void send() const {
    auto& shared = block_.shared;
    publish_shared();
    meet_cluster();
    if (threadIdx.x < 32) {
      if (threadIdx.x == 0 && mine_ > 0) {
        shared.parts_there.come_and_expect((blocks_ - 1) * mine_ * kPartBytes);
      }
      __syncwarp();
      const int to = static_cast<int>(threadIdx.x);
      if (to < blocks_ && to != rank_ && heads_of(to) > 0) {
        asm volatile(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
            "[%0], [%1], %2, [%3];" ::"r"(address_in(shared_address(came(rank_, 0)), to)),
            "r"(shared_address(left(to * share_))), "r"(heads_of(to) * kPartBytes),
            "r"(address_in(shared.parts_there.address(), to))
            : "memory");
      }
    }
    if (mine_ > 0) shared.parts_there.wait(0);
  }

  // Whether parts of some block are of no use.
  __device__ __forceinline__ bool useless() const {
    bool any = false;
    for (int s = 0; s < blocks_ && mine_ > 0; ++s) {
      const float sum = sums(s, 0).y;
      any = any || sum != sum;
    }
    return any;
  }

  // Sinks of the heads that this warp finishes, on their way while parts are.
  struct Sinks {
    float of[4];
  };
  __device__ __forceinline__ Sinks sinks() const {
    Sinks sinks;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int unit = static_cast<int>(threadIdx.x / 32) + i * kWarps;
      sinks.of[i] = unit < 2 * mine_ ? portable::sink_of(block_.p, head_of(unit)) : 0.0f;
    }
    return sinks;
  }

  // Output and log-sum-exp of this block's heads; a warp takes half of one at a time.
  __device__ __forceinline__ void add_up(const Sinks& sinks) const {
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const int unit = static_cast<int>(threadIdx.x / 32) + i * kWarps;
      if (unit >= 2 * mine_) break;
      add_up(unit, i == 0   ? sinks.of[0]
                   : i == 1 ? sinks.of[1]
                   : i == 2 ? sinks.of[2]
                            : sinks.of[3]);
    }
  }

 private:
  // Means, sums and eight bytes more: chunks of neighbouring heads lie in different banks.
  static constexpr int kPartBytes = kDim * 2 + 16;
  static_assert((2 * kHeads + kMostBlocks) * kPartBytes <=
                static_cast<int>(sizeof(Shared<Rows>::queries) + sizeof(Shared<Rows>::rows)));

  __device__ __forceinline__ int heads_of(int rank) const {
    return max(min(share_, block_.heads - rank * share_), 0);
  }
  // What this block has summed of a head, and what came from another block of one of its own.
  __device__ __forceinline__ unsigned char* left(int head) const {
    return block_.shared.queries + head * kPartBytes;
  }
  __device__ __forceinline__ unsigned char* came(int rank, int h) const {
    return block_.shared.queries + (kHeads + rank * share_ + h) * kPartBytes;
  }
  __device__ __forceinline__ const unsigned char* part(int rank, int h) const {
    return rank == rank_ ? left(first_ + h) : came(rank, h);
  }
  __device__ __forceinline__ float2 sums(int rank, int h) const {
    return *reinterpret_cast<const float2*>(part(rank, h) + kDim * 2);
  }

  static constexpr int kWarps = kThreads / 32;
  static_assert(kHeads / 2 * 2 <= 4 * kWarps);  // two blocks at least: half of the heads each
  __device__ __forceinline__ std::int64_t head_of(int unit) const {
    return block_.first_head + first_ + unit / 2;
  }

  __device__ __forceinline__ void add_up(int unit, float sink) const {
    const auto& p = block_.p;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int h = unit / 2, chunk = unit % 2 * 32 + lane;
    const float2 its = lane < blocks_ ? sums(lane, h) : make_float2(kMinusInf, -1.0f);
    const bool there = its.y != -1.0f;
    const bool any = __any_sync(kAllLanes, there) != 0;
    const float best = warp_max(there ? its.x : kMinusInf);
    const float shift = best == kMinusInf ? 0.0f : best;
    const float weight = there ? its.y * power_of_two(its.x - shift) : 0.0f;
    const float sum = warp_sum(weight);
    const float whole = any ? portable::normaliser(sum, best, sink) : 0.0f;
    const float factor = weight * whole * (1.0f / (1 << (kRowBits - 1)));
    float value[8] = {};
#pragma unroll 4
    for (int s = 0; s < blocks_; ++s) {
      const float f = __shfl_sync(kAllLanes, factor, s);
      const uint4 v = *reinterpret_cast<const uint4*>(part(s, h) + chunk * 16);
      const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
        value[2 * i] = fmaf(both.x, f, value[2 * i]);
        value[2 * i + 1] = fmaf(both.y, f, value[2 * i + 1]);
      }
    }
    reinterpret_cast<uint4*>(at<std::uint16_t>(p.o, block_.token, head_of(unit)))[chunk] =
        make_uint4(pair_of(value[0], value[1]), pair_of(value[2], value[3]),
                   pair_of(value[4], value[5]), pair_of(value[6], value[7]));
    if (chunk == 0) {
      *at<float>(p.lse, block_.token, head_of(unit)) =
          any ? portable::log_sum(sum, best) : portable::nothing(p);
    }
  }

  const Block<Rows>& block_;
  const int blocks_, rank_, share_, first_, mine_;
};

#endif

}  // namespace attnscope::cuda::hopper
