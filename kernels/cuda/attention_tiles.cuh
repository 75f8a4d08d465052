// Attention of queries that follow each other in a sequence, on Hopper: a block has tiles of them
// with a KV head, in some shapes one after another: the next is fetched while one ends. One
// warpgroup has the copy engine fetch keys and values, whole boxes of rows at a time; two others
// score 64 query rows each, and take the scores of the next rows while the values of those before
// are summed. Weights are rounded to bf16, as public kernels do it.
//
// Where rows lie, which a query sees and what becomes of results is said by the op (Op below):
//   params p           with q, o, lse, alibi_slopes, scale, soft_cap
//   I64 group          query heads of a KV head
//   int box_rows       of a box, which divide a tile's keys
//   int panels_k, panels_v  of 64 columns from one head to the next, for grouped boxes
//   bool find(i, tile) begin, tokens and request of tile i, by all copiers; false = none
//   void leave(tile)   by the copiers of one block, what find said false to
//   Seen seen(t, r)    rows that token t of request r sees
//   Seen part(rows)    the block's share of them
//   I64 first_row(r)   where tiles of these rows begin, a box's first row
//   Box box(r, row)    the place of a box that begins at a row, in the tensor maps
//   value_row(r, row, g)  the values of a row's head: bf16, or of what number_of(.., dim) knows
//   float* part_of_head(t, h)  where a head's part goes, null = it is the whole
//   float total(h, best, sum)  what weights are divided by
#pragma once

#include "kernels/cuda/attention_computer.cuh"

namespace attnscope::cuda::tiles {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The tiles that a block takes: of `all`, longest first, every block has one of each turn; turns
// go forth and back, so that blocks have about as much to do.
struct Turns {
  std::uint32_t all, of_tile, head_blocks;
  int heads;

  __device__ __forceinline__ std::uint32_t number(std::uint32_t turn) const {
    const std::uint32_t mine = turn % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    return turn * gridDim.x + mine;
  }
};

// By the copiers: the tile of a number; false = it is left to others.
template <class S, class Op>
__device__ __forceinline__ bool look_up(const Op& op, const Turns& turns, std::uint32_t number,
                                        Shared<S>& shared, Told& told) {
  // A tile's heads are neighbours, so that where the first tiles take longest all of those begin
  // first.
  Tile& tile = told.tile;
  const std::uint32_t of = number / turns.of_tile, of_number = number - of * turns.of_tile;
  if (!op.find(of, tile)) {
    if (of_number == 0 && blockIdx.z == 0) op.leave(tile);
    return false;
  }
  tile.kv_head = of_number / turns.head_blocks;
  const I64 block = of_number - tile.kv_head * turns.head_blocks;
  tile.first_head = tile.kv_head * op.group + block * turns.heads;
  tile.heads = static_cast<int>(min(I64{turns.heads}, op.group - block * turns.heads));
  int first = INT32_MAX, end = 0, all_first = 0, all_end = INT32_MAX;
  if (threadIdx.x < tile.tokens) {
    const Seen seen = op.seen(tile.begin + threadIdx.x, tile.request);
    first = all_first = static_cast<int>(seen.first);
    end = all_end = static_cast<int>(seen.end);
  }
  first = __reduce_min_sync(kAllLanes, first);
  end = __reduce_max_sync(kAllLanes, end);
  all_first = __reduce_max_sync(kAllLanes, all_first);
  all_end = __reduce_min_sync(kAllLanes, all_end);
  if (threadIdx.x % 32 == 0) {
    int* of_warp = shared.bounds[threadIdx.x / 32];
    of_warp[0] = first, of_warp[1] = end, of_warp[2] = all_first, of_warp[3] = all_end;
  }
  hopper::barrier_wait(kCopying, S::kCopiers);
#pragma unroll
  for (int w = 0; w < S::kCopiers / 32; ++w) {
    first = min(first, shared.bounds[w][0]);
    end = max(end, shared.bounds[w][1]);
    all_first = max(all_first, shared.bounds[w][2]);
    all_end = min(all_end, shared.bounds[w][3]);
  }
  hopper::barrier_wait(kCopying, S::kCopiers);  // they may be written again
  told.rows.first = __shfl_sync(kAllLanes, first, 0);
  told.rows.end = __shfl_sync(kAllLanes, end, 0);
  told.rows = op.part(told.rows);
  told.all_first = all_first;
  told.all_end = all_end;
  told.there = true;
  return true;
}

// A query row of a tile into the L2, a thread a row.
template <class S, class Op>
__device__ __forceinline__ void fetch_queries(const Op& op, const Tile& tile) {
  const I64 t = static_cast<int>(threadIdx.x) / tile.heads;
  if (t >= tile.tokens) return;
  const auto* row = reinterpret_cast<const unsigned char*>(at<std::uint16_t>(
      op.p.q, tile.begin + t, tile.first_head + static_cast<int>(threadIdx.x) % tile.heads));
  for (I64 byte = 0; byte < op.p.q.shape[2] * 2; byte += 128) {
    prefetch(row + byte);
  }
}

// What the copiers do: they are a tile ahead of who computes.
template <class S, class Op>
__device__ __forceinline__ void bring_tiles(const Op& op, const Turns& turns, const CUtensorMap* k,
                                            const CUtensorMap* v, Shared<S>& shared) {
  Place<S> place;
  int looks = 0, count = 0;
  for (std::uint32_t turn = 0;; ++turn) {
    const std::uint32_t number = turns.number(turn);
    Told told{};
    if (number < turns.all && !look_up<S>(op, turns, number, shared, told)) continue;
    const int slot = count % 2;
    if (S::kGoesOn && count >= 2) shared.tile_done[slot].wait((count / 2 - 1) & 1);
    if (threadIdx.x == 0) shared.told[slot] = told;
    shared.tile_there[slot].come();
    if (!told.there) return;
    ++count;
    fetch_queries<S>(op, told.tile);
    if (told.rows.first < told.rows.end) {
      if constexpr (S::kCoded) {
        // Registers are few: from shared memory, where the first thread has put it.
        hopper::barrier_wait(kCopying, S::kCopiers);
        widen_all<S>(op, shared.told[slot], shared, place);
      } else {
        copy_all<S>(op, told, k, v, shared, place, looks);
      }
    }
    if constexpr (!S::kGoesOn) return;
  }
}

template <class S, class Op>
__device__ __forceinline__ void compute_tiles(const Op& op, Shared<S>& shared) {
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 128 - 1, 0);
  Place<S> place;
  for (int count = 0;; ++count) {
    shared.tile_there[count % 2].wait(count / 2 & 1);
    const std::conditional_t<S::kCoded, const Told&, Told> told = shared.told[count % 2];
    if (!told.there) return;
    Computer<S, Op> computer{op, told, told.tile, told.rows, shared, group, place};
    computer.prepare();
    computer.run();
    computer.finish();
    if constexpr (!S::kGoesOn) return;
    shared.tile_done[count % 2].come();
  }
}

#endif

template <class S, class Op>
__global__ void __launch_bounds__(S::kThreads, 1)
    tiles_kernel(const __grid_constant__ Op op, int heads, std::uint32_t all, std::uint32_t of_tile,
                 std::uint32_t head_blocks, const __grid_constant__ CUtensorMap k,
                 const __grid_constant__ CUtensorMap v) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ Shared<S> shared;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      shared.full_k[i].init(S::kCopiers);
      shared.full_v[i].init(S::kCopiers);
      shared.empty_k[i].init(S::kGroups * 128);
      shared.empty_v[i].init(S::kGroups * 128);
    }
    for (int i = 0; i < 2; ++i) {
      shared.tile_there[i].init(S::kCopiers);
      shared.tile_done[i].init(S::kGroups * 128);
    }
    shared.landed.init(S::kCopiers);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  hopper::publish_shared();
  __syncthreads();
  if (threadIdx.x < S::kCopiers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::kFew));
    bring_tiles<S>(op, Turns{all, of_tile, head_blocks, heads}, &k, &v, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::kMany));
    compute_tiles<S>(op, shared);
  }
#else
  static_cast<void>(op), static_cast<void>(heads), static_cast<void>(all);
  static_cast<void>(of_tile), static_cast<void>(head_blocks);
  static_cast<void>(k), static_cast<void>(v);
#endif
}

// What shapes say of a tile for heads of `size` dims: 0 rows = there is none.
struct Fit {
  int dims, rows, keys, bytes;
};
template <int kDims, bool coded>
constexpr Fit fit() {
  using S = Shape<kDims, false, coded>;
  return {kDims, S::kRows, S::kKeys, S::kBytes};
}
template <bool coded = false>
Fit fit_of(I64 size) {
  if (size <= 64) return fit<64, coded>();
  if (size <= 128) return fit<128, coded>();
  if (size <= 256) return fit<256, coded>();
  return {};
}

// A tensor [pages, rows, heads, size] of bf16 as boxes of 64 numbers of `box_rows` rows of a head,
// swizzled as wgmma.cuh says; strides in numbers. 0 or a CUDA error.
struct Rows {
  const void* data;
  I64 size, heads, rows, pages;
  I64 head_stride, row_stride, page_stride;
};
inline int map_rows(const Rows& r, int box_rows, CUtensorMap* map) {
  const auto encode = hopper::tensor_map_encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto wide = [](I64 v) { return static_cast<cuuint64_t>(v); };
  const cuuint64_t sizes[4] = {wide(r.size), wide(r.heads), wide(r.rows), wide(r.pages)};
  const cuuint64_t strides[3] = {wide(2 * r.head_stride), wide(2 * r.row_stride),
                                 wide(2 * r.page_stride)};
  const cuuint32_t box[4] = {64, 1, static_cast<cuuint32_t>(box_rows), 1}, each[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void*>(r.data), sizes, strides,
             box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// The same as boxes of all columns of a head, which are whole panels and `panels` apart from head
// to head: eight rows of every panel, then the next eight.
inline int map_groups(const Rows& r, int box_rows, CUtensorMap* map) {
  const auto encode = hopper::tensor_map_encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto wide = [](I64 v) { return static_cast<cuuint64_t>(v); };
  const I64 panels = r.size / 64;
  const cuuint64_t sizes[5] = {64, 8, wide((r.heads - 1) * (r.head_stride / 64) + panels),
                               wide(r.rows / 8), wide(r.pages)};
  const cuuint64_t strides[4] = {wide(2 * r.row_stride), 128, wide(16 * r.row_stride),
                                 wide(2 * r.page_stride)};
  const cuuint32_t box[5] = {64, 8, static_cast<cuuint32_t>(panels),
                             static_cast<cuuint32_t>(box_rows / 8), 1};
  const cuuint32_t each[5] = {1, 1, 1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, const_cast<void*>(r.data), sizes, strides,
             box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Blocks for `tiles` tiles of every KV head, in `splits` parts.
template <class S, class Op>
int launch_tiles(const Op& op, I64 tiles, I64 kv_heads, I64 splits, const CUtensorMap& k,
                 const CUtensorMap& v, const Launch& launch) {
  const auto kernel = tiles_kernel<S, Op>;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
  if (code != cudaSuccess) return code;
  const I64 heads = std::min<I64>(op.group, S::kRows);
  const auto head_blocks = static_cast<std::uint32_t>((op.group + heads - 1) / heads);
  const auto of_tile = static_cast<std::uint32_t>(kv_heads) * head_blocks;
  const auto all = static_cast<std::uint32_t>(tiles) * of_tile;
  const auto room =
      static_cast<std::uint32_t>(std::max<I64>(launch.gpu.multiprocessors / splits, 1));
  const dim3 grid(S::kGoesOn ? std::min(all, room) : all, 1, static_cast<unsigned>(splits));
  kernel<<<grid, S::kThreads, S::kBytes, static_cast<cudaStream_t>(launch.stream)>>>(
      op, static_cast<int>(heads), all, of_tile, head_blocks, k, v);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace attnscope::cuda::tiles
