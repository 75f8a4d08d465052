// sparse_attention on Hopper.
//
// A block takes one token, 64 heads and a run of tiles of 64 list entries; hopper_tile.cuh says who
// does what, hopper_gather.cuh and hopper_compute.cuh how.
#include <cuda_fp16.h>

#include "kernels/cuda/early.cuh"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/cuda/hopper_compute.cuh"
#include "kernels/cuda/hopper_gather.cuh"
#include "kernels/cuda/hopper_tile.cuh"

namespace attnscope::cuda::hopper {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Sixteen values of a row, from 16 lane on.
__device__ __forceinline__ void load_values(const RowAddress& row, int lane, float (&values)[16]) {
  if (lane < 28) {
    const uint4 codes = __ldg(reinterpret_cast<const uint4*>(row.payload) + lane);
    const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    const float scale = ue8m0_to_float(row.scales[lane / 4]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t pair = widen_e4m3x2(words[i / 2] >> (16 * (i % 2)));
      const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&pair));
      values[2 * i] = both.x * scale;
      values[2 * i + 1] = both.y * scale;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4 chunk = __ldg(reinterpret_cast<const uint4*>(row.payload) + 2 * lane - 28 + i);
    const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      values[8 * i + 2 * k] = __uint_as_float(words[k] << 16);
      values[8 * i + 2 * k + 1] = __uint_as_float(words[k] & 0xffff0000u);
    }
  }
}

// The whole block once more in fp32, a warp a head: slow, for values that fp16 does not hold.
__device__ __forceinline__ void again_in_float(Block block, const Sources& sources) {
  const auto& p = block.p;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const Lists lists = block.find_tiles();
#pragma unroll 1
  for (int h = static_cast<int>(threadIdx.x / 32); h < block.heads; h += kThreads / 32) {
    const std::int64_t head = block.first_head + h;
    float query[16], sums[16];
    const auto* from = at<std::uint16_t>(p.q, block.token, head) + 16 * lane;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      query[i] = bf16_to_float(from[i]);
      sums[i] = 0.0f;
    }
    float best = kMinusInf, sum = 0.0f;
    bool any = false;
#pragma unroll 1
    for (int entry = block.begin * kTile; entry < block.end * kTile; ++entry) {
      const int slot = portable::slot_of(lists, entry / kTile, entry % kTile);
      if (slot < 0) continue;
      any = true;
      float values[16];
      load_values(row_at(sources.pages[entry / kTile >= lists.tiles[0] ? 1 : 0],
                         static_cast<std::uint32_t>(slot)),
                  lane, values);
      float score = 0.0f;
#pragma unroll
      for (int i = 0; i < 16; ++i) score = fmaf(query[i], values[i], score);
      score = warp_sum(score) * block.scale;
      const float top = fmaxf(best, score);
      const float shift = top == kMinusInf ? 0.0f : top;
      const float old = exp2f(best - shift), weight = exp2f(score - shift);
      best = top;
      sum = sum * old + weight;
#pragma unroll
      for (int i = 0; i < 16; ++i) sums[i] = fmaf(weight, values[i], sums[i] * old);
    }
    if (const std::int64_t place = block.place(); place >= 0) {
      const std::int64_t index = place * p.q.shape[1] + head;
#pragma unroll
      for (int i = 0; i < 16; ++i) block.parts.values[index * kDim + 16 * lane + i] = sums[i];
      block.parts.best[index] = best;
      block.parts.sum[index] = any ? sum : -1.0f;
      continue;
    }
    const float factor = any ? portable::normaliser(sum, best, *at<float>(p.sinks, head)) : 0.0f;
    auto* to =
        reinterpret_cast<std::uint32_t*>(at<std::uint16_t>(p.o, block.token, head)) + 8 * lane;
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = pair_of(sums[2 * i] * factor, sums[2 * i + 1] * factor);
    *at<float>(p.lse, block.token, head) = any ? portable::log_sum(sum, best) : -kMinusInf;
  }
}

// A pass of one warpgroup. Whether its result is of no use.
template <bool exact, int group>
__device__ __forceinline__ bool pass(const as_sparse_attention_params& p, const Sources& sources,
                                     const Parts& parts, Shared& shared, float scale) {
  Block block(p, parts, shared, exact ? scale : scale * (1.0f / (1 << kRowBits)));
  if constexpr (group >= 2) {
    const Lists lists = block.find_tiles();
    const bool misfit =
        Gather<exact, group - 2>(lists, sources, static_cast<int>(threadIdx.x) % kGroup)
            .tiles(shared, block.begin, block.end);
    barrier_wait(kReady + group - 2, 32 + kGroup);
    return misfit;
  } else {
    block.find_tiles();
    if constexpr (group == 0) {
      return Scorer<exact>(block).run();
    } else {
      return add_upper<exact>(block);
    }
  }
}

template <bool exact, int group>
__device__ __forceinline__ void attend(const as_sparse_attention_params& p, const Sources& sources,
                                       const Parts& parts, Shared& shared, float scale,
                                       bool misfit) {
  if constexpr (exact) {
    pass<true, group>(p, sources, parts, shared, scale);
  } else if (any_of_block(shared, pass<false, group>(p, sources, parts, shared, scale) || misfit)) {
    again_in_float(Block(p, parts, shared, scale), sources);
  }
}

#endif

template <bool exact>
__global__ void __launch_bounds__(kThreads, 1)
    hopper_attention_kernel(const __grid_constant__ as_sparse_attention_params p,
                            const __grid_constant__ Sources sources,
                            const __grid_constant__ Parts parts, float scale) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<Shared*>(
      raw_shared + ((1024u - (shared_address(raw_shared) & 1023u)) & 1023u));
  follow_kernel_before();
  if (Block(p, parts, shared, scale).token < 0) return;  // the plan has fewer splits
  // 208 + 160 + 2 * 72 registers are the block's 4 * 128: more would be waited for in vain.
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  bool misfit = false;
  if (group < 2) {
    if (threadIdx.x < 32) init(shared);
    misfit = load_queries<exact>(Block(p, parts, shared, scale));
    barrier_wait(kQueries, 2 * kGroup);
  }
  if (group == 0) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    attend<exact, 0>(p, sources, parts, shared, scale, misfit);
  } else if (group == 1) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    attend<exact, 1>(p, sources, parts, shared, scale, misfit);
  } else if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    attend<exact, 2>(p, sources, parts, shared, scale, false);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    attend<exact, 3>(p, sources, parts, shared, scale, false);
  }
#endif
}

}  // namespace

bool takes(const as_sparse_attention_params& p, const Gpu& gpu) {
  return gpu.hopper && p.q.shape[1] > 0 && gpu.shared_memory >= kBytes;
}

int splits_for(const as_sparse_attention_params& p, const Gpu& gpu) {
  const std::int64_t blocks = p.q.shape[0] * ((p.q.shape[1] + kHeads - 1) / kHeads);
  const bool extra = p.extra_cache.record != AS_RECORD_NONE;
  const std::int64_t tiles =
      portable::list_tiles(p.indices) + (extra ? portable::list_tiles(p.extra_indices) : 0);
  // In tenths of a microsecond on an H200: a tile, what a second kernel costs, a block's parts.
  constexpr std::int64_t kTileCost = 16, kCombineCost = 25, kPartsCost = 1;
  int best = 1;
  std::int64_t least = tiles * kTileCost;
  for (int splits = 2; splits <= portable::kMaxSplits && splits <= tiles; ++splits) {
    if (blocks * splits > gpu.multiprocessors) break;
    const std::int64_t cost =
        (tiles + splits - 1) / splits * kTileCost + kCombineCost + blocks * splits * kPartsCost / 2;
    if (cost < least) {
      least = cost;
      best = splits;
    }
  }
  return best;
}

int sparse_attention(const as_sparse_attention_params& p, const Launch& launch) {
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  Sources sources{};
  sources.pages[0] = pages_of(p.cache);
  if (p.extra_cache.record != AS_RECORD_NONE) sources.pages[1] = pages_of(p.extra_cache);
  const Parts parts = portable::parts_of(p, splits_for(p, launch.gpu), launch.workspace);
  // Blocks of one token run side by side: they read the same rows.
  const bool by_plan = portable::has_plan(p);
  const std::int64_t units = by_plan ? p.plan_splits.shape[0] : p.q.shape[0];
  const dim3 grid(static_cast<unsigned>(units * ((p.q.shape[1] + kHeads - 1) / kHeads)), 1,
                  static_cast<unsigned>(by_plan ? 1 : parts.splits));
  const float scale = static_cast<float>(p.scale * 1.4426950408889634);
  const bool exact = launch.gpu.exact || !(scale > 0.0f);
  const auto kernel = exact ? hopper_attention_kernel<true> : hopper_attention_kernel<false>;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (code != cudaSuccess) return code;
  // Where blocks fill most multiprocessors, those put in place early get in each other's way.
  const bool early = std::int64_t{grid.x} * grid.z <= launch.gpu.multiprocessors / 2;
  const int status =
      launch_early(early, stream, grid, kThreads, kBytes, kernel, p, sources, parts, scale);
  if (status != 0 || !portable::combines(p, parts)) return status;
  return portable::combine(p, parts, stream, true);
}

}  // namespace attnscope::cuda::hopper
