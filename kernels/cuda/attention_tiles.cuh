// Attention of queries that follow each other in a sequence, on Hopper: a block has a tile of them
// and a KV head. One warpgroup has the copy engine fetch keys and values, whole boxes of rows at a
// time; two others score 64 query rows each, and take the scores of the next rows while the values
// of those before are summed. Weights are rounded to bf16, as public kernels do it.
//
// Where rows lie, which a query sees and what becomes of results is said by the op (Op below):
//   params p           with q, o, lse, alibi_slopes, scale, soft_cap
//   I64 group          query heads of a KV head
//   int box_rows       of a box, which divide a tile's keys
//   int panels_k, panels_v  of 64 columns from one head to the next, for grouped boxes
//   bool find(i, tile) begin, tokens and request of tile i, by all threads; false = none
//   void leave(tile)   by one block, what find said false to
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

template <class S, class Op>
__global__ void __launch_bounds__(S::kThreads, 1)
    tiles_kernel(const __grid_constant__ Op op, int heads, std::uint32_t of_tile,
                 std::uint32_t head_blocks, const __grid_constant__ CUtensorMap k,
                 const __grid_constant__ CUtensorMap v) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ Shared<S> shared;
  Tile tile;
  // A tile's heads are neighbours, so that where the first tiles take longest all of those begin
  // first.
  const std::uint32_t number = blockIdx.x / of_tile, of_number = blockIdx.x - number * of_tile;
  if (!op.find(number, tile)) {
    if (of_number == 0 && blockIdx.z == 0) op.leave(tile);
    return;
  }
  tile.kv_head = of_number / head_blocks;
  const I64 block = of_number - tile.kv_head * head_blocks;
  tile.first_head = tile.kv_head * op.group + block * heads;
  tile.heads = static_cast<int>(min(I64{heads}, op.group - block * heads));
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      shared.full_k[i].init(S::kCopiers);
      shared.full_v[i].init(S::kCopiers);
      shared.empty_k[i].init(S::kGroups * 128);
      shared.empty_v[i].init(S::kGroups * 128);
    }
    shared.landed.init(S::kCopiers);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    shared.first = shared.all_end = INT32_MAX;
    shared.end = shared.all_first = 0;
  }
  hopper::publish_shared();
  __syncthreads();
  if (threadIdx.x < tile.tokens) {
    const Seen seen = op.seen(tile.begin + threadIdx.x, tile.request);
    atomicMin(&shared.first, static_cast<int>(seen.first));
    atomicMax(&shared.end, static_cast<int>(seen.end));
    atomicMax(&shared.all_first, static_cast<int>(seen.first));
    atomicMin(&shared.all_end, static_cast<int>(seen.end));
  }
  __syncthreads();
  Seen rows;
  rows.first = __shfl_sync(kAllLanes, shared.first, 0);
  rows.end = __shfl_sync(kAllLanes, shared.end, 0);
  rows = op.part(rows);
  if (threadIdx.x < S::kCopiers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::kFew));
    if (rows.first < rows.end) {
      if constexpr (S::kCoded) {
        widen_all<S>(op, tile, rows, shared);
      } else {
        copy_all<S>(op, tile, rows, &k, &v, shared);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::kMany));
    const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 128 - 1, 0);
    Computer<S, Op> computer{op, tile, rows, shared, group};
    computer.prepare();
    computer.run();
    computer.finish();
  }
#else
  static_cast<void>(op), static_cast<void>(heads);
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
                 const CUtensorMap& v, cudaStream_t stream) {
  const auto kernel = tiles_kernel<S, Op>;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
  if (code != cudaSuccess) return code;
  const I64 heads = std::min<I64>(op.group, S::kRows);
  const auto head_blocks = static_cast<std::uint32_t>((op.group + heads - 1) / heads);
  const auto of_tile = static_cast<std::uint32_t>(kv_heads) * head_blocks;
  const dim3 grid(static_cast<unsigned>(tiles) * of_tile, 1, static_cast<unsigned>(splits));
  kernel<<<grid, S::kThreads, S::kBytes, stream>>>(op, static_cast<int>(heads), of_tile,
                                                   head_blocks, k, v);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace attnscope::cuda::tiles
