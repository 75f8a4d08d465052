// The parts of the heads that a block of hopper_few.cu owns, which the blocks of its cluster sent.
#pragma once

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/hopper_few.cuh"

namespace attnscope::cuda::hopper::few {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// To shared memory of a block of the cluster, whose barrier counts the bytes.
__device__ __forceinline__ void send_part(std::uint32_t from, std::uint32_t to,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(to),
      "r"(from), "n"(kPartBytes), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ float inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The i-th head of this warp.
__device__ __forceinline__ int head_of(int i) {
  return static_cast<int>(threadIdx.x / 32) + i * kWarps;
}
// Where its owner has the part of its h-th head that block `rank` sent, from the first on.
__device__ __forceinline__ int place_of(const Task& task, int h, int rank) {
  return (h * task.blocks + rank) * kPartBytes;
}
__device__ __forceinline__ const unsigned char* part_of(const Shared& shared, const Task& task,
                                                        int h, int rank) {
  return shared.came + place_of(task, h, rank);
}

// Sends what this block has of each head to who owns the head; then what the others sent is here.
__device__ __forceinline__ void exchange_parts(Shared& shared, const Task& task,
                                               const unsigned char* parts) {
  std::uint32_t to[kHeadsOfWarp], barriers[kHeadsOfWarp];
#pragma unroll
  for (int i = 0; i < kHeadsOfWarp; ++i) {
    const int h = min(head_of(i), task.heads - 1), owner = h / task.share;
    to[i] =
        address_in(shared_address(shared.came) + place_of(task, h % task.share, task.rank), owner);
    barriers[i] = address_in(shared.parts_there.address(), owner);
  }
  publish_shared();
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int i = 0; i < kHeadsOfWarp; ++i) {
      const int h = head_of(i);
      if (h < task.heads && h / task.share != task.rank) {
        send_part(shared_address(parts) + h * kPartBytes, to[i], barriers[i]);
      }
    }
  }
  // Its own, by all threads.
  constexpr int kChunks = kPartBytes / 16;
  const auto* own = reinterpret_cast<const uint4*>(parts + task.rank * task.share * kPartBytes);
  for (int id = static_cast<int>(threadIdx.x); id < task.mine * kChunks; id += kThreads) {
    unsigned char* part = shared.came + place_of(task, id / kChunks, task.rank);
    reinterpret_cast<uint4*>(part)[id % kChunks] = own[id];
  }
  shared.parts_there.come();
  shared.parts_there.wait(0);
}

// Of the heads whose parts this warp weighs.
struct Sums {
  float most[kHeadsOfWarp], all[kHeadsOfWarp];
  bool some[kHeadsOfWarp];  // whether any entry was valid
};

// Weights of the blocks' parts, a warp a head.
__device__ __forceinline__ Sums weigh_parts(Shared& shared, const Task& task) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  Sums sums;
#pragma unroll
  for (int i = 0; i < kHeadsOfWarp; ++i) {
    const int h = head_of(i);
    if (h >= task.mine) break;
    const auto& tail = *reinterpret_cast<const Tail*>(
        part_of(shared, task, h, min(lane, task.blocks - 1)) + kDim * 2);
    const auto* its_sums = reinterpret_cast<const float4*>(tail.sums);
    const float4 low = its_sums[0], high = its_sums[1];
    const float best = tail.best;
    const bool there = lane < task.blocks && tail.any != 0.0f;
    const float total =
        ((low.x + low.y) + (low.z + low.w)) + ((high.x + high.y) + (high.z + high.w));
    if (total != total) atomicExch(&shared.useless, 1u);
    sums.some[i] = __any_sync(kAllLanes, there) != 0;
    sums.most[i] = warp_max<kMostBlocks>(there ? best : kMinusInf);
    const float shift = shift_of(sums.most[i]);
    const float weight = there ? power_of_two(best - shift) : 0.0f;
    sums.all[i] = warp_sum<kMostBlocks>(there ? total * weight : 0.0f);
    const float sink = power_of_two(fmaf(shared.sinks[h], portable::kLog2e, -shift));
    const float whole =
        sums.some[i] ? inverse(sums.all[i] + sink) * (1.0f / (1 << kRowBits)) : 0.0f;
    if (lane < kMostBlocks) shared.factors[h][lane] = weight * whole;
  }
  __syncthreads();
  return sums;
}

__device__ __forceinline__ void write_lse(const as_sparse_attention_params& p, const Task& task,
                                          const Sums& sums) {
#pragma unroll
  for (int i = 0; i < kHeadsOfWarp; ++i) {
    if (head_of(i) >= task.mine || threadIdx.x % 32 != 0) break;
    *at<float>(p.lse, task.token, task.first_mine + head_of(i)) =
        sums.some[i] ? (shift_of(sums.most[i]) + __log2f(sums.all[i])) * portable::kLn2
                     : portable::nothing(p);
  }
}

// The outputs of this block's heads: a thread has two dims, a warp dims of one scale.
__device__ __forceinline__ void add_parts(const Shared& shared, const Task& task,
                                          std::uint16_t* out, std::int64_t stride) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
#pragma unroll 1
  for (int h = 0; h < task.mine; ++h) {
    float value[2][2] = {};
#pragma unroll
    for (int first = 0; first < kMostBlocks; first += 4) {
      if (first >= task.blocks) break;
      const float4 four = *reinterpret_cast<const float4*>(shared.factors[h] + first);
      const float factors[4] = {four.x, four.y, four.z, four.w};
      float scales[4];
      __half2 pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // behind the last block: its part once more, by 0
        const unsigned char* part = part_of(shared, task, h, min(first + i, task.blocks - 1));
        scales[i] = reinterpret_cast<const Tail*>(part + kDim * 2)->scales[warp];
        pairs[i] = reinterpret_cast<const __half2*>(part)[thread];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 both = __half22float2(pairs[i]);
        const float factor = factors[i] * scales[i];
        value[i % 2][0] = fmaf(both.x, factor, value[i % 2][0]);
        value[i % 2][1] = fmaf(both.y, factor, value[i % 2][1]);
      }
    }
    reinterpret_cast<std::uint32_t*>(out + h * stride)[thread] =
        portable::pair_of(value[0][0] + value[1][0], value[0][1] + value[1][1]);
  }
}

#endif

}  // namespace attnscope::cuda::hopper::few
