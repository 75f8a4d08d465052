// sparse_attention of few tokens on Hopper, where what counts is the time from start to end.
//
// A block takes 16 heads of a token and every n-th eight entries of its lists, so that few rows lie
// between it and its result. A warp gathers eight rows at a time, four lanes a row; what a lane
// decodes is what `mma` wants of it as keys, with dims in another order, which the queries in
// registers have, too. As values rows go through shared memory, and each warp sums 64 dims, while
// it decodes and scores the tile after. The blocks of those heads are a cluster and send each other
// parts, as fp16 with a power of two for each head and 64 dims; each finishes the heads it owns.
// All addresses are computed while the kernel before still runs.
//
// The arithmetic is the near-exact form of hopper_tile.cuh. Parts of a block where fp16 does not
// hold some value say so, and who owns the heads computes them again in fp32.
#include <algorithm>
#include <array>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/hopper_again.cuh"
#include "kernels/cuda/hopper_few.cuh"
#include "kernels/cuda/hopper_few.h"
#include "kernels/cuda/hopper_few_parts.cuh"

namespace attnscope::cuda::hopper::few {
namespace {

__global__ void __launch_bounds__(kThreads, 1)
    few_attention_kernel(const __grid_constant__ as_sparse_attention_params p,
                         const __grid_constant__ Sources sources, float scale) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(alignof(Shared)) unsigned char shared_of_few[];
  auto& shared = *reinterpret_cast<Shared*>(shared_of_few);
  AS_DEVICE_CHECK(shared_address(&shared) % alignof(Shared) == 0);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const Task task(p);
  if (thread == 0) {
    shared.useless = 0;
    shared.pages[0] = sources.pages[0];
    shared.pages[1] = sources.pages[1];
    shared.parts_there.init(1 + kThreads);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    shared.parts_there.come_and_expect((task.blocks - 1) * task.mine * kPartBytes);
  }
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  Entries entries(p, task.token);
  Queries queries(p, task);
  const std::int32_t* slots_at[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    slots_at[i] = entries.address(i);
    asm volatile("" : "+l"(slots_at[i]));  // computed here
  }
  const Pages& first_pages = sources.pages[entries.cache(0)];
  const float* sink_at = thread < task.mine && present(p.sinks)
                             ? at<float>(p.sinks, task.first_mine + thread)
                             : nullptr;
  follow_kernel_before();
  const int slot = __ldg(slots_at[0]);
  entries.load_lens(p);
  const int next = __ldg(slots_at[1]);
  int ahead = __ldg(slots_at[2]);
  queries.load();
  const float sink = sink_at != nullptr ? __ldg(sink_at) : kMinusInf;
  Row row;
  row.load(Place(first_pages, entries.within(0, slot)));
  const int units = entries.units(), tiles = (units + kWarps - 1) / kWarps;
  if (thread < kHeads) shared.sinks[thread] = sink;
  const bool misfit = __syncthreads_or(queries.store(shared) ? 1 : 0) != 0;
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");  // all blocks are there

  // Of the tile that is asked for next; the slot after it is on its way.
  const auto find = [&](int tile, int its_slot) {
    return Place(shared.pages[entries.cache(tile)], entries.within(tile, its_slot));
  };
  Place place = find(1, next);
  Worker worker(shared, scale * (1.0f / (1 << kRowBits)));
  if (warp < units) worker.keep_queries();
  const auto look_up = [&](int tile) {
    place = find(tile, ahead);
    ahead = __ldg(entries.address(tile + 1));
  };
  if (tiles > 0) {
    worker.score<false>(0, row, place);
    look_up(2);
    worker.weigh(0);
#pragma unroll 1
    for (int tile = 1; tile < tiles; ++tile) {
      worker.score<true>(tile, row, place);
      look_up(tile + 2);
      worker.weigh(tile);
    }
    worker.add_last(tiles - 1, units - (tiles - 1) * kWarps);
  }
  // The buffer that the last tile is not in.
  unsigned char* parts = shared.rows[tiles & 1];
  worker.leave(parts, misfit);
  exchange_parts(shared, task, parts);
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  const Sums sums = weigh_parts(shared, task);
  if (shared.useless != 0) {
    const Lists lists = portable::lists_of(p, task.token);
    again_in_float<RecordRows>(
        p, sources, Parts{}, lists,
        {task.token, task.first_mine, task.mine, 0, lists.tiles[0] + lists.tiles[1], -1}, scale);
  } else {
    add_parts(shared, task, at<std::uint16_t>(p.o, task.token, task.first_mine), p.o.stride[1]);
    write_lse(p, task, sums);
  }
  asm volatile("barrier.cluster.wait;" ::: "memory");  // nobody reads this block's parts
#endif
}

constexpr std::int64_t kMostTokens = 65535;  // of a grid's second dimension

std::int64_t groups_of(const as_sparse_attention_params& p) {
  return (p.q.shape[1] + kHeads - 1) / kHeads;
}

cudaError_t allow() {
  const cudaError_t code = cudaFuncSetAttribute(
      few_attention_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes));
  if (code != cudaSuccess) return code;
  return cudaFuncSetAttribute(few_attention_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed,
                              1);
}

// How many clusters of so many blocks run at once.
std::int64_t clusters_of(int blocks) {
  static const auto kClusters = [] {
    return allow() == cudaSuccess ? clusters_by_size(few_attention_kernel, kThreads, kBytes)
                                  : std::array<int, kMostBlocks + 1>{};
  }();
  return kClusters[static_cast<std::size_t>(blocks)];
}

}  // namespace

Choice choose(const as_sparse_attention_params& p, std::int64_t tokens, const Gpu& gpu) {
  const auto units = [](const as_tensor& list) { return (list.shape[1] + kUnit - 1) / kUnit; };
  const bool extra = p.extra_cache.record != AS_RECORD_NONE;
  const std::int64_t all = units(p.indices) + (extra ? units(p.extra_indices) : 0);
  const std::int64_t clusters = tokens * groups_of(p);
  // More tokens than multiprocessors have blocks at once: where one block has all of a token's
  // heads, its rows are decoded once here as well.
  const auto in_turns = [&](int blocks) {
    return blocks == 1 && groups_of(p) == 1 && tokens <= kMostTokens;
  };
  Choice best;
  if (gpu.shared_memory < kBytes) return best;
  for (int blocks = 1; blocks <= kMostBlocks && blocks <= std::max<std::int64_t>(all, 1);
       ++blocks) {
    const bool at_once =
        clusters * blocks <= gpu.multiprocessors && clusters <= clusters_of(blocks);
    if (!at_once && !in_turns(blocks)) continue;
    const std::int64_t units_here = std::max<std::int64_t>((all + blocks - 1) / blocks, 1);
    const std::int64_t tiles = (units_here + kWarps - 1) / kWarps;
    const std::int64_t last = units_here - (tiles - 1) * kWarps;
    // As measured on an H200: a tile, longer where many blocks ask for rows, what a second one, the
    // last one's units, many blocks and large clusters add; what the other kernel's costs leave out
    // is subtracted.
    const std::int64_t busy = std::min<std::int64_t>(clusters * blocks, gpu.multiprocessors);
    const std::int64_t cost = (tiles - 1) * (13 + busy / 64) + (tiles > 1 ? 8 : 0) +
                              last * 13 / 10 + busy / 16 + blocks / 4 + (blocks > 8 ? 4 : 0) - 25;
    if (best.blocks == 0 || cost < best.cost) best = {blocks, cost};
  }
  return best;
}

int attention(const as_sparse_attention_params& p, const Launch& launch, int blocks) {
  if (const cudaError_t code = allow(); code != cudaSuccess) return code;
  const dim3 grid(static_cast<unsigned>(groups_of(p)), static_cast<unsigned>(p.q.shape[0]),
                  static_cast<unsigned>(blocks));
  return launch_early(true, launch.stream, grid, kThreads, kBytes, cluster_of(blocks),
                      few_attention_kernel, p, sources_of(p),
                      static_cast<float>(p.scale * 1.4426950408889634));
}

}  // namespace attnscope::cuda::hopper::few
