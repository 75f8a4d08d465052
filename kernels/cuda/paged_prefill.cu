// paged_attention of tokens that follow each other in a request, on Hopper: a block has a tile of
// them and a KV head, 128 rows of queries. One warpgroup has the copy engine fetch keys and values,
// whole pages of 128 rows at a time; two others score 64 query rows each, and take the scores of
// the next rows while the values of those before are summed. Weights are rounded to bf16, as public
// kernels do it.
//
// Of 64 query rows a lane has those of mma.cuh in its warp's 16.
#include "kernels/cuda/paged_steps.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma.cuh"

namespace attnscope::cuda::paged {
namespace {

using hopper::Barrier;

constexpr int kRows = 128, kKeys = 128, kDims = 128;
constexpr int kGroups = 2;     // that compute
constexpr int kCopiers = 128;  // threads
constexpr int kThreads = kCopiers + kGroups * 128;
constexpr int kStages = 3;
constexpr int kPanel = kKeys * 128;  // bytes of 64 columns of 128 rows
constexpr int kTileBytes = 2 * kPanel;

struct Shared {
  Barrier full_k[kStages], full_v[kStages], empty_k[kStages], empty_v[kStages];
  Barrier landed;  // values that are looked through before they are full
  // Of all tokens: the first row that one sees, the end of those that one sees, and the rows that
  // all see.
  int first, end, all_first, all_end;
  // By stage and warp of copiers: rows with a NaN or an infinity that not all queries see.
  std::uint32_t unusual[kStages][kCopiers / 32];
  unsigned char* tiles;  // queries, keys by stage, values by stage

  // All queries see these rows.
  __device__ __forceinline__ bool whole(I64 row, const Seen& rows) const {
    return row >= max(I64{all_first}, rows.first) && row + kKeys <= min(I64{all_end}, rows.end);
  }
  __device__ __forceinline__ std::uint32_t queries() { return shared_address(tiles); }
  __device__ __forceinline__ std::uint32_t keys(int stage) {
    return queries() + (1 + stage) * kTileBytes;
  }
  __device__ __forceinline__ std::uint32_t values(int stage) {
    return queries() + (1 + kStages + stage) * kTileBytes;
  }
};
constexpr int kBytes = (1 + 2 * kStages) * kTileBytes + 1024;

// Place in the ring of stages, and the parity of its phase.
struct Place {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// A tile's tokens, and the heads of its KV head that it has.
struct Tile {
  I64 begin, tokens, request, kv_head, first_head;
  int heads;
};

// Both panels of a page's head, by one thread, which comes to the barrier with them.
__device__ __forceinline__ void copy_page(std::uint32_t to, const CUtensorMap* map, int kv_head,
                                          int page, int rows, Barrier& done) {
  done.come_and_expect(static_cast<std::uint32_t>(2 * rows * 128));
#pragma unroll
  for (int panel = 0; panel < 2; ++panel) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %3, %4, %5}], [%6];" ::"r"(to + panel * kPanel),
        "l"(map), "r"(panel * 64), "r"(kv_head), "r"(0), "r"(page), "r"(done.address())
        : "memory");
  }
}

// Tiles of rows begin where a page does.
__device__ __forceinline__ I64 first_row(const Numbers& n, const Seen& rows) {
  return rows.first / n.k.rows * n.k.rows;
}

// A query that does not see a row would still multiply it by zero: where a row of values that not
// all see holds a NaN or an infinity, zeros take its place and its bit is set. A thread a row,
// whose copies are done.
__device__ __forceinline__ void hide_unusual(std::uint32_t values, std::uint32_t* rows) {
  const int row = threadIdx.x % kKeys;
  __syncwarp();
  bool found = false;
#pragma unroll
  for (int chunk = 0; chunk < kDims / 8; ++chunk) {
    uint4 word;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                 : "r"(values + hopper::panel_offset<kKeys>(row, chunk))
                 : "memory");
    for (const std::uint32_t pair : {word.x, word.y, word.z, word.w}) {
      found |= (pair & 0x7f80u) == 0x7f80u || (pair & 0x7f800000u) == 0x7f800000u;
    }
  }
  const std::uint32_t all = __ballot_sync(kAllLanes, found);
  if (threadIdx.x % 32 == 0) rows[threadIdx.x / 32] = all;
  if (!found) return;
  for (int chunk = 0; chunk < kDims / 8; ++chunk) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(
                     values + hopper::panel_offset<kKeys>(row, chunk)),
                 "r"(0)
                 : "memory");
  }
}

// Pages of a tile of rows, one a thread; all copiers come to a barrier with every tile.
__device__ __forceinline__ void copy_all(const as_paged_attention_params& p, const Numbers& n,
                                         const Tile& tile, const Seen& rows, const CUtensorMap* k,
                                         const CUtensorMap* v, Shared& shared) {
  const int of_page = static_cast<int>(n.k.rows), kv_head = static_cast<int>(tile.kv_head);
  const int mine = static_cast<int>(threadIdx.x) * of_page;
  const auto page_in = [&](I64 row) {
    const bool there = mine < kKeys && row + mine < rows.end;
    return there ? static_cast<int>(slot_of(p, n, tile.request, row + mine) / of_page) : -1;
  };
  const auto copy = [&](std::uint32_t to, const CUtensorMap* map, int page, Barrier& done) {
    if (page < 0) return done.come();
    copy_page(to + mine * 128, map, kv_head, page, of_page, done);
  };
  Place place;
  int looks = 0;
  I64 row = first_row(n, rows);
  int page = page_in(row);
  for (; row < rows.end; row += kKeys) {
    const int next = page_in(row + kKeys);
    shared.empty_k[place.stage].wait(place.parity ^ 1);
    copy(shared.keys(place.stage), k, page, shared.full_k[place.stage]);
    shared.empty_v[place.stage].wait(place.parity ^ 1);
    std::uint32_t* unusual = shared.unusual[place.stage];
    if (shared.whole(row, rows)) {
      if (threadIdx.x % 32 == 0) unusual[threadIdx.x / 32] = 0;
      copy(shared.values(place.stage), v, page, shared.full_v[place.stage]);
    } else {
      copy(shared.values(place.stage), v, page, shared.landed);
      shared.landed.wait(looks++ % 2);
      hide_unusual(shared.values(place.stage), unusual);
      hopper::publish_shared();
      shared.full_v[place.stage].come();
    }
    page = next;
    place.next();
  }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct Computer {
  const as_paged_attention_params& p;
  const Numbers& n;
  const Tile& tile;
  const Seen& rows;
  Shared& shared;
  int group;

  std::int32_t first[2] = {0, 0}, end[2] = {0, 0};  // that the lane's two query rows see
  I64 token[2];
  int head[2];
  bool any[2];
  Exponents exponents{};
  Weights weights;
  float o[64] = {};
  std::uint32_t packed[8][4] = {};

  __device__ __forceinline__ void prepare() {
    const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
    exponents.scale = static_cast<float>(p.scale);
    exponents.cap = static_cast<float>(p.soft_cap);
    for (int i = 0; i < 2; ++i) {
      const int row = group * 64 + warp * 16 + lane / 4 + 8 * i;
      token[i] = row / tile.heads;
      head[i] = row % tile.heads;
      any[i] = false;
      if (token[i] >= tile.tokens) {
        token[i] = -1;
        continue;
      }
      token[i] += tile.begin;
      const Seen seen = seen_by(p, token[i], tile.request);
      any[i] = seen.first < seen.end;
      first[i] = static_cast<std::int32_t>(max(seen.first, rows.first));
      end[i] = static_cast<std::int32_t>(min(seen.end, rows.end));
      exponents.position[i] = static_cast<std::int32_t>(seen.position);
      if (present(p.alibi_slopes)) {
        exponents.slope[i] = *at<float>(p.alibi_slopes, tile.first_head + head[i]);
      }
    }
    const int size = static_cast<int>(p.q.shape[2]);
    for (int i = thread; i < 64 * 16; i += 128) {
      const int row = group * 64 + i / 16, chunk = i % 16;
      const I64 t = row / tile.heads;
      const bool there = t < tile.tokens && chunk * 8 < size;
      copy_chunk(shared.queries() + hopper::panel_offset<kRows>(row, chunk),
                 there ? at<std::uint16_t>(p.q, tile.begin + t, tile.first_head + row % tile.heads,
                                           chunk * 8)
                       : p.q.data,
                 there);
    }
    end_copies();
    wait_copies<0>();
    hopper::publish_shared();
    hopper::barrier_wait(group + 1, 128);
  }

  __device__ __forceinline__ void start_scores(int stage, float (&s)[64]) {
    const std::uint64_t q = hopper::descriptor(shared.queries() + group * 64 * 128, 16);
    const std::uint64_t k = hopper::descriptor(shared.keys(stage), 16);
#pragma unroll
    for (int step = 0; step < kDims / 16; ++step) {
      const int at = (step / 4 * kPanel + step % 4 * 32) / 16;
      hopper::step_64x128_rows<true>(s, q + at, k + at, step > 0);
    }
    hopper::end_steps();
  }
  __device__ __forceinline__ void start_values(int stage) {
    const std::uint64_t v = hopper::descriptor(shared.values(stage), kPanel);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      hopper::step_64x128<true>(o, packed[step], v + step * 16 * 128 / 16);
    }
    hopper::end_steps();
  }
  __device__ __forceinline__ void scale_values(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) o[i] *= factor[i % 4 / 2];
  }

  // Rows of values whose place was taken by zeros, for the queries that see them.
  __device__ __forceinline__ void add_unusual(int stage, I64 row) {
    std::uint32_t weights_of[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) weights_of[i] = packed[i / 4][i % 4];
    const int lane = threadIdx.x % 32, size_v = static_cast<int>(p.o.shape[2]);
    for (int c = 0; c < kKeys; ++c) {
      if ((shared.unusual[stage][c / 32] >> c % 32 & 1) == 0) continue;
      if (row + c < rows.first || row + c >= rows.end) continue;
      const I64 from = offset_of(n.v, slot_of(p, n, tile.request, row + c), tile.kv_head);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t pair = __shfl_sync(
            kAllLanes, weights_of[c / 16 * 4 + c % 16 / 8 * 2 + i], lane / 4 * 4 + c % 8 / 2);
        const float weight = c % 2 == 0 ? low_bf16(pair) : high_bf16(pair);
        if (row + c < first[i] || row + c >= end[i]) continue;
#pragma unroll
        for (int d = 0; d < 32; ++d) {
          const int dim = d / 2 * 8 + lane % 4 * 2 + d % 2;
          const float v = dim < size_v ? bf16_to_float(n.v.base[from + dim]) : 0.0f;
          float& sum = o[d / 2 * 4 + 2 * i + d % 2];
          sum = fmaf(weight, v, sum);
        }
      }
    }
  }
  __device__ __forceinline__ void values_done(const Place& place, I64 row) {
    const auto& unusual = shared.unusual[place.stage];
    if ((unusual[0] | unusual[1] | unusual[2] | unusual[3]) != 0) add_unusual(place.stage, row);
    shared.empty_v[place.stage].come();
  }
  __device__ __forceinline__ void weigh(float (&s)[64], I64 row, float (&factor)[2]) {
    weights.take<kKeys>(reinterpret_cast<float(&)[16][4]>(s), exponents, !shared.whole(row, rows),
                        static_cast<std::int32_t>(row), first, end, factor);
  }
  __device__ __forceinline__ void pack(const float (&s)[64]) {
    const auto& weights_of = reinterpret_cast<const float(&)[16][4]>(s);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      pack_weights(weights_of[2 * step], weights_of[2 * step + 1], packed[step]);
    }
  }

  __device__ __forceinline__ void run() {
    if (rows.first >= rows.end) return;
    Place place, before;
    float s[64], factor[2];
    shared.full_k[0].wait(0);
    hopper::begin_steps();
    start_scores(0, s);
    hopper::wait_steps<0>();
    shared.empty_k[0].come();
    I64 row = first_row(n, rows);
    weigh(s, row, factor);
    pack(s);
    place.next();
    row += kKeys;
    for (; row < rows.end; row += kKeys) {
      shared.full_k[place.stage].wait(place.parity);
      shared.full_v[before.stage].wait(before.parity);
      hopper::begin_steps();
      start_scores(place.stage, s);
      start_values(before.stage);
      hopper::wait_steps<1>();
      shared.empty_k[place.stage].come();
      weigh(s, row, factor);
      hopper::wait_steps<0>();
      values_done(before, row - kKeys);
      scale_values(factor);
      pack(s);
      before = place;
      place.next();
    }
    shared.full_v[before.stage].wait(before.parity);
    hopper::begin_steps();
    start_values(before.stage);
    hopper::wait_steps<0>();
    values_done(before, row - kKeys);
  }

  __device__ __forceinline__ void finish(float* parts) {
    weights.sum_up();
    const int column = 2 * (threadIdx.x % 4), size_v = static_cast<int>(p.o.shape[2]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (token[i] < 0) continue;
      const I64 t = token[i], h = tile.first_head + head[i];
      const float best = weights.best[i] * kLn2, sum = weights.sum[i];
      if (n.splits > 1) {
        float* to = part_at(p, n, parts, t, h, blockIdx.z);
        if (column == 0) {
          to[0] = best;
          to[1] = sum;
        }
#pragma unroll
        for (int d = 0; d < 32; ++d) {
          const int dim = d / 2 * 8 + column + d % 2;
          if (dim < size_v) to[kOthers + dim] = o[d / 2 * 4 + 2 * i + d % 2];
        }
        continue;
      }
      const float total = total_of(p, h, best, sum);
      std::uint16_t* to = at<std::uint16_t>(p.o, t, h);
#pragma unroll
      for (int d = 0; d < 16; ++d) {
        const int dim = d * 8 + column;
        const std::uint32_t pair =
            any[i] ? std::uint32_t{float_to_bf16(o[4 * d + 2 * i] / total)} |
                         std::uint32_t{float_to_bf16(o[4 * d + 2 * i + 1] / total)} << 16
                   : 0u;
        if (dim < size_v) *reinterpret_cast<std::uint32_t*>(to + dim) = pair;
      }
      if (column == 0) *at<float>(p.lse, t, h) = any[i] ? lse_of(best, sum) : minus_infinity();
    }
  }
};

#endif

__global__ void __launch_bounds__(kThreads, 1)
    prefill_kernel(const __grid_constant__ as_paged_attention_params p,
                   const __grid_constant__ Numbers n, I64 tokens, I64 head_blocks, int heads,
                   float* parts, Others others, const __grid_constant__ CUtensorMap k,
                   const __grid_constant__ CUtensorMap v) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  __shared__ Shared shared;
  // Later tokens see more: they begin first.
  Tile tile;
  tile.begin = (gridDim.x - 1 - blockIdx.x) * tokens;
  tile.tokens = min(tokens, p.q.shape[0] - tile.begin);
  tile.request = request_of_all(p, tile.begin, tile.begin + tile.tokens);
  if (tile.request < 0) {
    if (blockIdx.y == 0 && blockIdx.z == 0) others.add(tile.begin, tile.tokens);
    return;
  }
  tile.kv_head = blockIdx.y / head_blocks;
  const I64 block = blockIdx.y % head_blocks;
  tile.first_head = tile.kv_head * n.group + block * heads;
  tile.heads = static_cast<int>(min(I64{heads}, n.group - block * heads));
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      shared.full_k[i].init(kCopiers);
      shared.full_v[i].init(kCopiers);
      shared.empty_k[i].init(kGroups * 128);
      shared.empty_v[i].init(kGroups * 128);
    }
    shared.landed.init(kCopiers);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    shared.first = shared.all_end = INT32_MAX;
    shared.end = shared.all_first = 0;
    const std::uint32_t start = shared_address(memory);
    shared.tiles = memory + ((start + 1023) / 1024 * 1024 - start);
  }
  hopper::publish_shared();
  __syncthreads();
  if (threadIdx.x < tile.tokens) {
    const Seen seen = seen_by(p, tile.begin + threadIdx.x, tile.request);
    atomicMin(&shared.first, static_cast<int>(seen.first));
    atomicMax(&shared.end, static_cast<int>(seen.end));
    atomicMax(&shared.all_first, static_cast<int>(seen.first));
    atomicMin(&shared.all_end, static_cast<int>(seen.end));
  }
  __syncthreads();
  Seen rows;
  rows.first = shared.first;
  rows.end = shared.end;
  rows = part_of(rows, n.splits, blockIdx.z);
  if (threadIdx.x < kCopiers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    copy_all(p, n, tile, rows, &k, &v, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    Computer computer{p, n, tile, rows, shared, static_cast<int>(threadIdx.x) / 128 - 1};
    computer.prepare();
    computer.run();
    computer.finish(parts);
  }
#else
  static_cast<void>(k), static_cast<void>(v);
  static_cast<void>(p), static_cast<void>(n), static_cast<void>(tokens), static_cast<void>(others);
  static_cast<void>(head_blocks), static_cast<void>(heads), static_cast<void>(parts);
#endif
}

// A cache as boxes of a page's rows of 64 numbers of a head, swizzled as wgmma.cuh says. 0 or a
// CUDA error.
int map_cache(const cpu::KvPages& c, I64 size, I64 heads, I64 rows_total, CUtensorMap* map) {
  const auto encode = hopper::tensor_map_encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto wide = [](I64 v) { return static_cast<cuuint64_t>(v); };
  const cuuint64_t sizes[4] = {wide(size), wide(heads), wide(c.rows), wide(rows_total / c.rows)};
  const cuuint64_t strides[3] = {wide(2 * c.head), wide(2 * c.row), wide(2 * c.page)};
  const cuuint32_t box[4] = {64, 1, static_cast<cuuint32_t>(c.rows), 1}, each[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, c.base, sizes, strides, box, each,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

I64 heads_of_tile(const Numbers& n) { return std::min<I64>(n.group, kRows); }

}  // namespace

I64 prefill_tokens(const as_paged_attention_params& p, const Numbers& n, const Gpu& gpu) {
  const bool pages = n.paged && n.k.rows % 8 == 0 && kKeys % n.k.rows == 0;
  const bool fits = gpu.hopper && pages && std::max(p.q.shape[2], p.o.shape[2]) <= kDims &&
                    p.o.stride[2] == 1 && p.o.shape[2] % 2 == 0 && p.o.stride[0] % 2 == 0 &&
                    p.o.stride[1] % 2 == 0 && gpu.shared_memory >= kBytes;
  return fits ? kRows / heads_of_tile(n) : 0;
}

int prefill(const as_paged_attention_params& p, const Numbers& n, I64 tokens, float* parts,
            const Others& others, const Launch& launch) {
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  cudaError_t code =
      cudaFuncSetAttribute(prefill_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (code == cudaSuccess) code = cudaMemsetAsync(others.list, 0, sizeof(*others.list), stream);
  if (code != cudaSuccess) return code;
  const I64 kv_heads = as_cache_heads(&p.k_cache);
  CUtensorMap k{}, v{};
  int mapped = map_cache(n.k, p.q.shape[2], kv_heads, n.rows_total, &k);
  if (mapped == 0) mapped = map_cache(n.v, p.o.shape[2], kv_heads, n.rows_total, &v);
  if (mapped != 0) return mapped;
  const I64 heads = heads_of_tile(n);
  const I64 head_blocks = (n.group + heads - 1) / heads;
  const dim3 grid(static_cast<unsigned>((p.q.shape[0] + tokens - 1) / tokens),
                  static_cast<unsigned>(kv_heads * head_blocks), static_cast<unsigned>(n.splits));
  prefill_kernel<<<grid, kThreads, kBytes, stream>>>(p, n, tokens, head_blocks,
                                                     static_cast<int>(heads), parts, others, k, v);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace attnscope::cuda::paged
