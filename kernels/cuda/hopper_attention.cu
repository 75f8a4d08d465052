// sparse_attention on Hopper.
//
// A block takes one token, 64 heads and a run of tiles of 64 list entries; hopper_tile.cuh says who
// does what, hopper_gather.cuh and hopper_compute.cuh how. Blocks that share a token's tiles are a
// cluster and add their parts up among themselves (hopper_cluster.cuh); where there is no room for
// such clusters, or a plan says how tiles are cut, a second kernel combines them.
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <climits>
#include <type_traits>

#include "kernels/cuda/early.cuh"
#include "kernels/cuda/hopper_again.cuh"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/cuda/hopper_cluster.cuh"
#include "kernels/cuda/hopper_compute.cuh"
#include "kernels/cuda/hopper_few.h"
#include "kernels/cuda/hopper_gather.cuh"
#include "kernels/cuda/hopper_tile.cuh"

namespace attnscope::cuda::hopper {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// What the block has computed, once more.
template <class Rows>
__device__ __forceinline__ void again_in_float(const Block<Rows>& block, const Lists& lists,
                                               const Sources& sources) {
  again_in_float<Rows>(
      block.p, sources, block.parts, lists,
      {block.token, block.first_head, block.heads, block.begin, block.end, block.place()},
      block.scale);
}

__device__ __forceinline__ std::uint32_t multiprocessors() {
  std::uint32_t n;
  asm("mov.u32 %0, %%nsmid;" : "=r"(n));
  return n;
}

// Into the L2 what block `id` waits for first: queries, lengths and lists. By so many threads.
template <class Rows, int threads>
__device__ __forceinline__ void fetch_for_block(const as_sparse_attention_params& p,
                                                std::uint32_t id) {
  const std::uint32_t of_token = (static_cast<std::uint32_t>(p.q.shape[1]) + kHeads - 1) / kHeads;
  const std::int64_t token = id / of_token;
  const int first_head = static_cast<int>(id % of_token) * kHeads;
  const int heads = min(kHeads, static_cast<int>(p.q.shape[1]) - first_head);
  const int thread = static_cast<int>(threadIdx.x) % threads;
  constexpr int kLine = 128, kLines = Rows::kWidth * 2 / kLine;  // bytes, of a head's queries
#pragma unroll 1
  for (int i = thread; i < heads * kLines; i += threads) {
    const auto* head = at<std::uint16_t>(p.q, token, first_head + i / kLines);
    prefetch(reinterpret_cast<const unsigned char*>(head) + i % kLines * kLine);
  }
  const auto fetch_list = [&](const as_tensor& list, const as_tensor& lens) {
    const auto* slots = reinterpret_cast<const unsigned char*>(at<std::int32_t>(list, token));
#pragma unroll 1
    for (std::int64_t byte = thread * kLine; byte < list.shape[1] * 4; byte += threads * kLine) {
      prefetch(slots + byte);
    }
    if (thread == 0) {
      prefetch(reinterpret_cast<const unsigned char*>(at<std::int32_t>(lens, token)));
    }
  };
  fetch_list(p.indices, p.topk_length);
  if (p.extra_cache.record != AS_RECORD_NONE) fetch_list(p.extra_indices, p.extra_topk_length);
}

// For this block, before it may read them; where another one of this multiprocessor ran before,
// that has done it.
template <class Rows>
__device__ __forceinline__ void fetch_for_this_block(const as_sparse_attention_params& p) {
  if (blockIdx.x >= multiprocessors() || portable::has_plan(p)) return;
  fetch_for_block<Rows, kThreads>(p, blockIdx.x);
}
// For the one that probably comes next on this multiprocessor. By a warpgroup that has gathered all
// its tiles, while the others still compute.
template <class Rows>
__device__ __forceinline__ void fetch_for_next_block(const as_sparse_attention_params& p) {
  const std::uint32_t id = blockIdx.x + multiprocessors();
  if (id >= gridDim.x || gridDim.z > 1 || portable::has_plan(p)) return;
  fetch_for_block<Rows, kGroup>(p, id);
}

// What a warpgroup does for the block's tiles. Whether its result is of no use.
template <bool exact, bool together, int group, class Rows>
__device__ __forceinline__ bool attend(const as_sparse_attention_params& p, const Sources& sources,
                                       const Parts& parts, Shared<Rows>& shared, float scale) {
  Block<Rows> block(p, parts, shared, exact ? scale : scale * (1.0f / (1 << kRowBits)));
  const Lists lists = block.find_tiles();
  if constexpr (group >= 2) {
    const bool misfit = Gather<exact, group - 2, Rows, !together>(
                            lists, sources, static_cast<int>(threadIdx.x) % kGroup)
                            .tiles(shared, block.begin, block.end);
    if constexpr (group == 3 && !together) fetch_for_next_block<Rows>(p);
    barrier_wait(kReady + group - 2, 32 + kGroup);
    return misfit;
  } else if constexpr (group == 0) {
    return Scorer<exact, Rows>(block).run();
  } else {
    return add_upper<exact>(block);
  }
}

// The same in a block of a cluster, in the near-exact form: its part is left for the others.
template <int group, class Rows>
__device__ __forceinline__ void attend_part(const as_sparse_attention_params& p,
                                            const Sources& sources, const Parts& parts,
                                            Shared<Rows>& shared, float scale, bool misfit) {
  if constexpr (group >= 2) {
    any_of_block(shared, attend<false, true, group>(p, sources, parts, shared, scale));
    return;
  }
  Block<Rows> block(p, parts, shared, scale * (1.0f / (1 << kRowBits)));
  block.find_tiles();
  // Behind any_of_block() nobody reads queries and rows any more.
  if constexpr (group == 0) {
    Scorer<false, Rows> scorer(block);
    scorer.add_tiles();
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int first = 16 * static_cast<int>(threadIdx.x / 32) + lane / 4;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = scorer.sum(half) > 0.0f ? 0.5f / scorer.sum(half) : 0.0f;
      if (lane % 4 == 0) shared.last[first + 8 * half] = factor[half];
    }
    shared.last_there.come();
    misfit = any_of_block(shared, misfit || scorer.infinite());
    const Exchange<Rows> exchange(block);
    exchange.leave_values(0, scorer.values(), factor);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (lane % 4 == 0) {
        exchange.leave_sums(first + 8 * half, scorer.best(half),
                            misfit ? __int_as_float(0x7fffffff) : scorer.sum(half));
      }
    }
  } else {
    const int tid = static_cast<int>(threadIdx.x) % kGroup, row = 16 * (tid / 32) + tid % 32 / 4;
    float values[kHalf / 2];
    misfit = add_upper_tiles<false>(block, values) || misfit;
    shared.last_there.wait(0);
    const float factor[2] = {shared.last[row], shared.last[row + 8]};
    any_of_block(shared, misfit);
    Exchange<Rows>(block).leave_values(1, values, factor);
  }
}

// The heads of a block of a cluster, by all its threads.
template <class Rows>
__device__ __forceinline__ void finish_heads(const as_sparse_attention_params& p,
                                             const Sources& sources, const Parts& parts,
                                             Shared<Rows>& shared, float scale) {
  Block<Rows> block(p, parts, shared, scale);
  const Exchange<Rows> exchange(block);
  const typename Exchange<Rows>::Sinks sinks = exchange.sinks();
  exchange.send();
  if (exchange.useless()) {
    const Lists lists = block.find_tiles();
    Block<Rows> own = block;  // all tiles for its heads
    own.begin = 0;
    own.end = lists.tiles[0] + lists.tiles[1];
    own.first_head += exchange.first();
    own.heads = exchange.mine();
    again_in_float(own, lists, sources);
  } else {
    exchange.add_up(sinks);
  }
  meet_cluster();  // a block's parts are on their way to others
}

#endif

template <class Rows, bool exact, bool together>
__global__ void __launch_bounds__(kThreads, 1)
    hopper_attention_kernel(const __grid_constant__ as_sparse_attention_params p,
                            const __grid_constant__ Sources sources,
                            const __grid_constant__ Parts parts, float scale) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<Shared<Rows>*>(
      raw_shared + ((1024u - (shared_address(raw_shared) & 1023u)) & 1023u));
  fetch_for_this_block<Rows>(p);
  follow_kernel_before();
  if (Block<Rows>(p, parts, shared, scale).token < 0) return;  // the plan has fewer splits
  // 208 + 160 + 2 * 72 registers are the block's 4 * 128: more would be waited for in vain.
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  bool misfit = false;
  if (group < 2) {
    if (threadIdx.x < 32) init(shared);
    const Block<Rows> block(p, parts, shared, scale);
    // Sinks early, so that nothing waits for them in the end.
    const int head = static_cast<int>(threadIdx.x) - kGroup;
    const bool loads = !together && head >= 0 && head < block.heads;
    const float sink = loads ? portable::sink_of(p, block.first_head + head) : kMinusInf;
    misfit = load_queries<exact>(block);
    if (loads) shared.sinks[head] = sink;
    barrier_wait(kQueries, 2 * kGroup);
  }
  const auto run = [&](auto which) {
    if constexpr (together) {
      static_assert(!exact);
      attend_part<which>(p, sources, parts, shared, scale, misfit);
    } else {
      misfit = attend<exact, false, which>(p, sources, parts, shared, scale) || misfit;
    }
  };
  if (group == 0) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    run(std::integral_constant<int, 0>{});
  } else if (group == 1) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    run(std::integral_constant<int, 1>{});
  } else if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    run(std::integral_constant<int, 2>{});
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    run(std::integral_constant<int, 3>{});
  }
  // All warpgroups: of the registers, 72 are everybody's.
  if constexpr (together) {
    finish_heads(p, sources, parts, shared, scale);
  } else if constexpr (!exact) {
    if (!any_of_block(shared, misfit)) return;
    Block<Rows> block(p, parts, shared, scale);
    const Lists lists = block.find_tiles();
    again_in_float(block, lists, sources);
  }
#endif
}

using Kernel = void (*)(as_sparse_attention_params, Sources, Parts, float);

bool of_mla(const as_sparse_attention_params& p) { return p.cache.record == AS_RECORD_LATENT_656; }
std::size_t bytes_of(bool mla) { return mla ? kBytes<MlaRows> : kBytes<RecordRows>; }

Kernel kernel_of(bool mla, bool exact, bool together) {
  if (mla) {
    return together ? hopper_attention_kernel<MlaRows, false, true>
                    : hopper_attention_kernel<MlaRows, false, false>;
  }
  if (exact) return hopper_attention_kernel<RecordRows, true, false>;
  return together ? hopper_attention_kernel<RecordRows, false, true>
                  : hopper_attention_kernel<RecordRows, false, false>;
}

cudaError_t allow(Kernel kernel, bool mla, bool together) {
  cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(bytes_of(mla)));
  if (code == cudaSuccess && together) {
    code = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  return code;
}

bool in_exact_form(const as_sparse_attention_params& p, const Gpu& gpu) {
  return gpu.exact || !(p.scale > 0.0);
}

// How many clusters of so many blocks run at once.
std::int64_t clusters_of(int blocks) {
  static const auto kClusters = [] {
    const Kernel kernel = kernel_of(false, false, true);
    return allow(kernel, false, true) == cudaSuccess
               ? clusters_by_size(kernel, kThreads, bytes_of(false))
               : std::array<int, kMostBlocks + 1>{};
  }();
  return kClusters[static_cast<std::size_t>(blocks)];
}

}  // namespace

bool takes(const as_sparse_attention_params& p, const Gpu& gpu) {
  return gpu.hopper && p.q.shape[1] > 0 && gpu.shared_memory >= bytes_of(false);
}

bool takes(const as_sparse_mla_attention_params& p, const Gpu& gpu) {
  const auto whole = [](const as_tensor& t, int size) {  // chunks of 16 bytes
    std::uint64_t bits = reinterpret_cast<std::uintptr_t>(t.data);
    for (int i = 0; i + 1 < t.rank; ++i) bits |= static_cast<std::uint64_t>(t.stride[i] * size);
    return bits % 16 == 0;
  };
  return gpu.hopper && !gpu.exact && p.scale > 0.0 && p.cache.record == AS_RECORD_LATENT_656 &&
         p.q.shape[1] > 0 && gpu.shared_memory >= bytes_of(true) && whole(p.q, 2) &&
         whole(p.o, 2) && whole(p.cache.data, 1) &&
         p.cache.data.shape[0] * std::max(1, p.cache.rows_per_block) < INT32_MAX;
}

// The same call as of DeepSeek-V4, whose rows, widths and sinks are not there.
as_sparse_attention_params as_sparse_call(const as_sparse_mla_attention_params& p) {
  as_sparse_attention_params call{};
  call.head = p.head;
  call.q = p.q;
  call.cache = p.cache;
  call.indices = p.indices;
  call.topk_length = p.topk_length;
  call.o = p.o;
  call.lse = p.lse;
  call.scale = p.scale;
  return call;
}

Split split_of(const as_sparse_attention_params& p, const Gpu& gpu) {
  const bool exact = in_exact_form(p, gpu);
  // Of 1, 2, 4 tokens or a multiple of 8, as graphs of decode steps have: what padding adds does
  // not change how tokens are cut, so that results are the same bytes without it.
  const std::int64_t tokens = p.q.shape[0] == 3  ? 4
                              : p.q.shape[0] > 4 ? (p.q.shape[0] + 7) / 8 * 8
                                                 : p.q.shape[0];
  const std::int64_t blocks = tokens * ((p.q.shape[1] + kHeads - 1) / kHeads);
  const bool extra = p.extra_cache.record != AS_RECORD_NONE;
  const std::int64_t tiles =
      portable::list_tiles(p.indices) + (extra ? portable::list_tiles(p.extra_indices) : 0);
  // In tenths of a microsecond, as measured on an H100 (the exact form: on an H200): a tile, what a
  // second kernel and the parts in memory cost, what it costs that the blocks of a cluster send
  // each other theirs.
  const std::int64_t tile_cost = exact ? 16 : 22;
  const auto combine_cost = [&](std::int64_t parts) {
    return exact ? 25 + parts / 2 : 25 + parts * parts / 100;
  };
  const auto cluster_cost = [](std::int64_t parts, int splits) {
    return 36 + parts / 4 + (splits > 8 ? 20 : 0);
  };
  Split best;
  if (portable::has_plan(p)) return best;
  std::int64_t least = tiles * tile_cost;
  if (!exact && !of_mla(p)) {
    const few::Choice few = few::choose(p, tokens, gpu);
    if (few.blocks > 0 && few.cost < least) {
      least = few.cost;
      best = {few.blocks, true, true};
    }
  }
  for (int splits = 2; splits <= portable::kMaxSplits && splits <= tiles; ++splits) {
    const std::int64_t parts = blocks * splits;
    if (parts > gpu.multiprocessors) break;
    const auto consider = [&](std::int64_t cost, bool cluster) {
      cost += (tiles + splits - 1) / splits * tile_cost;
      if (cost >= least) return;
      least = cost;
      best = {splits, cluster, false};
    };
    consider(combine_cost(parts), false);
    if (!exact && splits <= kMostBlocks && blocks <= clusters_of(splits)) {
      consider(cluster_cost(parts, splits), true);
    }
  }
  return best;
}

int sparse_attention(const as_sparse_attention_params& p, const Launch& launch) {
  const Split split = split_of(p, launch.gpu);
  if (split.few) return few::attention(p, launch, split.blocks);
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  const Sources sources = sources_of(p);
  Parts parts = portable::parts_of(p, split.cluster ? 1 : split.blocks, launch.workspace);
  parts.splits = split.blocks;
  // Blocks of one token run side by side: they read the same rows.
  const bool by_plan = portable::has_plan(p);
  const std::int64_t units = by_plan ? p.plan_splits.shape[0] : p.q.shape[0];
  const dim3 grid(static_cast<unsigned>(units * ((p.q.shape[1] + kHeads - 1) / kHeads)), 1,
                  static_cast<unsigned>(by_plan ? 1 : parts.splits));
  const float scale = static_cast<float>(p.scale * 1.4426950408889634);
  const bool mla = of_mla(p);
  const Kernel kernel = kernel_of(mla, in_exact_form(p, launch.gpu), split.cluster);
  const std::size_t bytes = bytes_of(mla);
  if (const cudaError_t code = allow(kernel, mla, split.cluster); code != cudaSuccess) return code;
  // Beside a second kernel, blocks put in place early get in each other's way where they fill most
  // multiprocessors.
  const bool combines = portable::combines(p, parts) && !split.cluster;
  const bool early =
      std::int64_t{grid.x} * grid.z <= launch.gpu.multiprocessors / (combines ? 2 : 1);
  if (split.cluster) {
    return launch_early(early, stream, grid, kThreads, bytes, cluster_of(split.blocks), kernel, p,
                        sources, parts, scale);
  }
  const int status =
      launch_early(early, stream, grid, kThreads, bytes, kernel, p, sources, parts, scale);
  if (status != 0 || !combines) return status;
  return portable::combine(p, parts, stream, true);
}

}  // namespace attnscope::cuda::hopper
