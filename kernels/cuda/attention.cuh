// The attention kernels that every GPU from sm_80 on has, over rows of a cache or of a workspace.
//
// A block takes one token, up to 64 of its heads and a run of tiles of 64 list entries. Rows are
// gathered as they lie in the pages (the next tile's bytes wait in registers), decoded to bf16 in
// shared memory once, and serve as keys and as values. The softmax runs online over the tiles, in
// base 2. A weight enters the second product as two bf16: one alone would move a sum of few rows by
// more than one rounding of the result. Where tokens alone do not fill the GPU a token's tiles are
// split over several blocks, whose fp32 parts a second kernel combines in a fixed order. With a
// plan (attention_plan) there is a block for each of its splits, and what it names is combined.
#pragma once

#include <algorithm>

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda::portable {

using Bits = std::uint16_t;
using Params = as_sparse_attention_params;

constexpr int kDim = AS_HEAD_DIM;
constexpr int kTile = 64;                  // list entries decoded at once
constexpr int kRowChunks = kDim * 2 / 16;  // 16-byte chunks of a decoded row
constexpr int kCodeChunks = AS_NOPE_DIM / 16;
constexpr int kMaxSplits = 64;
constexpr float kMinusInf = -__builtin_huge_valf();
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

// What the rows hold: records of a latent cache, or bf16 values.
enum class Source { kRecords, kValues };

// The two lists of a token, as tiles: those of the window first.
struct Lists {
  const std::int32_t* slots[2];
  int lens[2];
  int tiles[2];
};

struct Caches {
  CacheView view[2];
};

// What the blocks of a split token leave for the second kernel.
struct Parts {
  float* values;  // [T,S,H,512] weighted sums, not yet divided; with a plan [places,H,512]
  float* best;    // [T,S,H] largest score, base 2
  float* sum;     // [T,S,H] sum of weights; -1 where no entry was valid
  int splits;     // of every token; unused with a plan
};

__host__ __device__ inline bool has_plan(const Params& p) { return p.plan_splits.data != nullptr; }

inline __device__ int of_split(const Params& p, std::int64_t n, as_plan_column column) {
  AS_DEVICE_CHECK(n < p.plan_splits.shape[0]);
  return *at<std::int32_t>(p.plan_splits, n, column);
}

template <int row_blocks>
struct alignas(128) Shared {
  static constexpr int heads = 16 * row_blocks;
  unsigned char queries[heads * kDim * 2];
  unsigned char rows[kTile * kDim * 2];
  unsigned char weights[2][heads * kTile * 2];  // rounded to bf16, and what the rounding cut off
  const unsigned char* payload[2][kTile];       // nullptr: not valid
  uint2 scales[2][kTile];
  Lists lists;
  Caches caches;
  float parts[kWarps][heads];  // of each row, by warp column
};

inline __device__ Lists lists_of(const Params& p, std::int64_t t) {
  Lists lists{};
  lists.slots[0] = at<std::int32_t>(p.indices, t);
  lists.lens[0] = *at<std::int32_t>(p.topk_length, t);
  if (p.extra_cache.record != AS_RECORD_NONE) {
    lists.slots[1] = at<std::int32_t>(p.extra_indices, t);
    lists.lens[1] = *at<std::int32_t>(p.extra_topk_length, t);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    lists.lens[i] = max(lists.lens[i], 0);
    lists.tiles[i] = (lists.lens[i] + kTile - 1) / kTile;
  }
  if (has_plan(p)) lists.tiles[0] = max(lists.tiles[0], 1);
  AS_DEVICE_CHECK(lists.lens[0] <= p.indices.shape[1]);
  AS_DEVICE_CHECK(lists.lens[1] <= p.extra_indices.shape[1]);
  return lists;
}

// Slot of an entry of a tile, -1 where there is none.
inline __device__ int slot_of(const Lists& lists, int tile, int entry) {
  const int i = tile >= lists.tiles[0] ? 1 : 0;
  const int column = (tile - i * lists.tiles[0]) * kTile + entry;
  return column < lists.lens[i] ? lists.slots[i][column] : -1;
}

template <Source source>
__device__ RowAddress row_of(const Lists& lists, const Caches& caches, int tile, int slot) {
  if (slot < 0) return {nullptr, nullptr};
  const CacheView& view = caches.view[tile >= lists.tiles[0] ? 1 : 0];
  return source == Source::kRecords ? cache_row(view, slot, 576, 8)
                                    : cache_row(view, slot, 2 * kDim, 0);
}

// Zero where there is no row, so that its values are zeros too: weight 0 times NaN would leak.
template <Source source>
__device__ uint2 scales_of(const RowAddress& row) {
  if (source == Source::kValues || row.payload == nullptr) return make_uint2(0u, 0u);
  return *reinterpret_cast<const uint2*>(row.scales);
}

// The next tile's bytes on their way from the pages.
template <Source source>
struct Raw {
  // 16-byte chunks of a row: 28 of codes and 8 of bf16, or bf16 alone.
  static constexpr int kRowBytesChunks = source == Source::kRecords ? 36 : kRowChunks;
  static constexpr int kPerThread = kTile * kRowBytesChunks / kThreads;
  static_assert(kTile * kRowBytesChunks % kThreads == 0);
  uint4 chunk[kPerThread];

  __device__ void load(const unsigned char* const* payload) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int id = i * kThreads + static_cast<int>(threadIdx.x);
      chunk[i] = make_uint4(0u, 0u, 0u, 0u);
      const unsigned char* row = payload[id / kRowBytesChunks];
      if (row != nullptr) {
        chunk[i] = __ldg(reinterpret_cast<const uint4*>(row) + id % kRowBytesChunks);
      }
    }
  }

  __device__ void decode(const uint2* scales, unsigned char* rows) const {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int id = i * kThreads + static_cast<int>(threadIdx.x);
      const int row = id / kRowBytesChunks;
      const int c = id % kRowBytesChunks;
      if (source == Source::kValues || c >= kCodeChunks) {
        const int to = source == Source::kValues ? c : kCodeChunks + c;
        *reinterpret_cast<uint4*>(rows + chunk_offset<kRowChunks>(row, to)) = chunk[i];
        continue;
      }
      const int block = c / 4;  // of 64 values
      const uint2 all = scales[row];
      const std::uint32_t scale =
          (block < 4 ? all.x >> (8 * block) : all.y >> (8 * block - 32)) & 0xffu;
      uint4 a, b;
      decode_e4m3x16(chunk[i], scale, &a, &b);
      *reinterpret_cast<uint4*>(rows + chunk_offset<kRowChunks>(row, 2 * c)) = a;
      *reinterpret_cast<uint4*>(rows + chunk_offset<kRowChunks>(row, 2 * c + 1)) = b;
    }
  }
};

__device__ __forceinline__ std::uint32_t pair_of(float low, float high) {
  return as_bits(__floats2bfloat162_rn(low, high));
}

// Four neighbouring products: none waits for another.
__device__ __forceinline__ void add_four(float (*c)[4], const Matrix4& a, const Matrix4& b0,
                                         const Matrix4& b1) {
  mma(c[0], a.r, b0.r[0], b0.r[1]);
  mma(c[1], a.r, b0.r[2], b0.r[3]);
  mma(c[2], a.r, b1.r[0], b1.r[1]);
  mma(c[3], a.r, b1.r[2], b1.r[3]);
}

// The work of one warp: 16 heads (row block m) by a column of entries, then of dims.
template <int row_blocks>
struct Warp {
  static constexpr int kHeads = 16 * row_blocks;
  static constexpr int kColumns = kWarps / row_blocks;  // warps side by side
  static constexpr int kEntries = kTile / kColumns;     // of the tile, for scores
  static constexpr int kScoreTiles = kEntries / 8;
  static constexpr int kDims = kDim / kColumns;  // for values
  static constexpr int kValueTiles = kDims / 8;

  int lane, m, n;
  float values[kValueTiles][4];
  float scores[kScoreTiles][4];
  float best[2];  // rows lane / 4 and lane / 4 + 8
  float sum[2];   // this lane's share

  __device__ void init() {
    lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    m = warp / kColumns;
    n = warp % kColumns;
#pragma unroll
    for (auto& tile : values) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
    best[0] = best[1] = kMinusInf;
    sum[0] = sum[1] = 0.0f;
  }

  __device__ int row(int half) const { return 16 * m + lane / 4 + 8 * half; }

  // scores = queries * rows^T for this warp's entries.
  __device__ void score(const Shared<row_blocks>& shared) {
#pragma unroll
    for (auto& tile : scores) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
    const std::uint32_t queries = shared_address(shared.queries);
    const std::uint32_t rows = shared_address(shared.rows);
    const int query_row = 16 * m + lane % 16;
#pragma unroll 2
    for (int k = 0; k < kDim / 16; k += 2) {
      const Matrix4 a0 =
          load_matrix4(queries + chunk_offset<kRowChunks>(query_row, 2 * k + lane / 16));
      const Matrix4 a1 =
          load_matrix4(queries + chunk_offset<kRowChunks>(query_row, 2 * k + 2 + lane / 16));
      Matrix4 b[kScoreTiles];
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) {
        const int entry = kEntries * n + 8 * j + lane % 8;
        b[j] = load_matrix4(rows + chunk_offset<kRowChunks>(entry, 2 * k + lane / 8));
      }
      // Neighbouring products do not wait for one another.
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) mma(scores[j], a0.r, b[j].r[0], b[j].r[1]);
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) mma(scores[j], a1.r, b[j].r[2], b[j].r[3]);
    }
  }

  // Scales the scores to base 2, masks entries that are not valid, leaves the warp's row maxima.
  __device__ void mask(Shared<row_blocks>* shared, const unsigned char* const* payload,
                       float scale) {
    float most[2] = {kMinusInf, kMinusInf};
#pragma unroll
    for (int j = 0; j < kScoreTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int entry = kEntries * n + 8 * j + 2 * (lane % 4) + i % 2;
        scores[j][i] = payload[entry] != nullptr ? scores[j][i] * scale : kMinusInf;
        most[i / 2] = fmaxf(most[i / 2], scores[j][i]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = warp_max<4>(most[half]);
      if (lane % 4 == 0) shared->parts[n][row(half)] = most[half];
    }
  }

  // Weights of the tile into shared memory, values so far scaled to the new maximum.
  __device__ void weigh(Shared<row_blocks>* shared, const unsigned char* const* payload) {
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = best[half];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) most = fmaxf(most, shared->parts[c][row(half)]);
      shift[half] = most == kMinusInf ? 0.0f : most;
      const float old = exp2f(best[half] - shift[half]);
      best[half] = most;
      sum[half] *= old;
#pragma unroll
      for (auto& tile : values) {
        tile[2 * half] *= old;
        tile[2 * half + 1] *= old;
      }
    }
#pragma unroll
    for (int j = 0; j < kScoreTiles; ++j) {
      const int first = kEntries * n + 8 * j;
      float w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int entry = first + 2 * (lane % 4) + i % 2;
        w[i] = payload[entry] != nullptr ? exp2f(scores[j][i] - shift[i / 2]) : 0.0f;
        sum[i / 2] += w[i];
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t offset = chunk_offset<kTile / 8>(row(half), first / 8) + 4 * (lane % 4);
        const float low = round_bf16(w[2 * half]);
        const float high = round_bf16(w[2 * half + 1]);
        *reinterpret_cast<std::uint32_t*>(shared->weights[0] + offset) = pair_of(low, high);
        *reinterpret_cast<std::uint32_t*>(shared->weights[1] + offset) =
            pair_of(w[2 * half] - low, w[2 * half + 1] - high);
      }
    }
  }

  // values += weights * rows for this warp's dims.
  __device__ void add(const Shared<row_blocks>& shared) {
    const std::uint32_t rows = shared_address(shared.rows);
#pragma unroll
    for (int k = 0; k < kTile / 16; ++k) {
      const std::uint32_t offset = chunk_offset<kTile / 8>(16 * m + lane % 16, 2 * k + lane / 16);
      const Matrix4 a = load_matrix4(shared_address(shared.weights[0]) + offset);
      const Matrix4 rest = load_matrix4(shared_address(shared.weights[1]) + offset);
#pragma unroll
      for (int j = 0; j < kValueTiles; j += 4) {
        const auto tile = [&](int i) {
          return load_matrix4_transposed(
              rows +
              chunk_offset<kRowChunks>(16 * k + lane % 16, kDims / 8 * n + j + i + lane / 16));
        };
        const Matrix4 b0 = tile(0);
        const Matrix4 b1 = tile(2);
        add_four(&values[j], a, b0, b1);
        add_four(&values[j], rest, b0, b1);
      }
    }
  }

  // Sum of each row's weights over lanes and warps.
  __device__ void total(Shared<row_blocks>* shared) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = warp_sum<4>(sum[half]);
      if (lane % 4 == 0) shared->parts[n][row(half)] = sum[half];
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = 0.0f;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sum[half] += shared->parts[c][row(half)];
    }
  }
};

// 1 / (sum + e^sink), both relative to the largest score (base 2).
__device__ __forceinline__ float normaliser(float sum, float best, float sink) {
  const float shift = best == kMinusInf ? 0.0f : best;
  return 1.0f / (sum + exp2f(sink * kLog2e - shift));
}

// Without sinks (absorbed MLA) there is none of any head, and the log-sum-exp of nothing is what it
// is.
__device__ __forceinline__ float sink_of(const Params& p, std::int64_t head) {
  return present(p.sinks) ? *at<float>(p.sinks, head) : kMinusInf;
}
__device__ __forceinline__ float nothing(const Params& p) {
  return present(p.sinks) ? -kMinusInf : kMinusInf;
}

__device__ __forceinline__ float log_sum(float sum, float best) {
  const float shift = best == kMinusInf ? 0.0f : best;
  return (shift + log2f(sum)) * kLn2;
}

template <int row_blocks, Source source>
__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(Params p, Caches given, Parts parts, float scale) {
  using W = Warp<row_blocks>;
  extern __shared__ unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<Shared<row_blocks>*>(raw_shared);
  const bool by_plan = has_plan(p);
  const std::int64_t unit = blockIdx.x;
  const std::int64_t t = by_plan ? of_split(p, unit, AS_PLAN_ROW) : unit;
  if (t < 0) return;  // the plan has fewer splits
  AS_DEVICE_CHECK(t < p.q.shape[0]);
  const int first_head = static_cast<int>(blockIdx.y) * W::kHeads;
  const int heads = min(W::kHeads, static_cast<int>(p.q.shape[1]) - first_head);
  const int tid = static_cast<int>(threadIdx.x);
  if (tid == 0) {
    shared.lists = lists_of(p, t);
    shared.caches = given;
  }
  __syncthreads();
  const Lists& lists = shared.lists;
  const Caches& caches = shared.caches;
  const int tiles = lists.tiles[0] + lists.tiles[1];
  const int split = static_cast<int>(blockIdx.z);
  const int begin =
      by_plan ? min(of_split(p, unit, AS_PLAN_BEGIN), tiles) : tiles * split / parts.splits;
  const int end =
      by_plan ? min(of_split(p, unit, AS_PLAN_END), tiles) : tiles * (split + 1) / parts.splits;

  for (int id = tid; id < W::kHeads * kRowChunks; id += kThreads) {
    const int h = id / kRowChunks;
    uint4 bits = make_uint4(0u, 0u, 0u, 0u);
    if (h < heads) {
      bits = reinterpret_cast<const uint4*>(at<Bits>(p.q, t, first_head + h))[id % kRowChunks];
    }
    *reinterpret_cast<uint4*>(shared.queries + chunk_offset<kRowChunks>(h, id % kRowChunks)) = bits;
  }

  // Addresses of tiles `begin` and the one after; slots of the one after that.
  int slot_ahead = -1;
  if (tid < kTile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int tile = begin + i;
      const RowAddress row =
          row_of<source>(lists, caches, tile, tile < end ? slot_of(lists, tile, tid) : -1);
      shared.payload[i][tid] = row.payload;
      shared.scales[i][tid] = scales_of<source>(row);
    }
    if (begin + 2 < end) slot_ahead = slot_of(lists, begin + 2, tid);
  }
  __syncthreads();

  W warp;
  warp.init();
  Raw<source> raw;
  int any = 0;
  if (begin < end) {
    raw.load(shared.payload[0]);
    raw.decode(shared.scales[0], shared.rows);
  }
  for (int tile = begin; tile < end; ++tile) {
    const int now = (tile - begin) & 1;
    const unsigned char* const* payload = shared.payload[now];
    __syncthreads();
    RowAddress ahead{nullptr, nullptr};
    uint2 ahead_scales{};
    if (tile + 1 < end) raw.load(shared.payload[now ^ 1]);
    if (tid < kTile) {
      ahead = row_of<source>(lists, caches, tile + 2, slot_ahead);
      ahead_scales = scales_of<source>(ahead);
      slot_ahead = tile + 3 < end ? slot_of(lists, tile + 3, tid) : -1;
    }
    warp.score(shared);
    warp.mask(&shared, payload, scale);
    any |= __syncthreads_or(tid < kTile && payload[tid % kTile] != nullptr ? 1 : 0);
    warp.weigh(&shared, payload);
    __syncthreads();
    warp.add(shared);
    __syncthreads();
    if (tid < kTile) {
      shared.payload[now][tid] = ahead.payload;
      shared.scales[now][tid] = ahead_scales;
    }
    if (tile + 1 < end) raw.decode(shared.scales[now ^ 1], shared.rows);
  }
  __syncthreads();
  warp.total(&shared);

  const int lane = warp.lane;
  const std::int64_t place = by_plan            ? of_split(p, unit, AS_PLAN_PLACE)
                             : parts.splits > 1 ? t * parts.splits + split
                                                : -1;
  if (place >= 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int h = warp.row(half);
      if (h >= heads) continue;
      const std::int64_t index = place * p.q.shape[1] + first_head + h;
      float* to = parts.values + index * kDim + W::kDims * warp.n + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < W::kValueTiles; ++j) {
        *reinterpret_cast<float2*>(to + 8 * j) =
            make_float2(warp.values[j][2 * half], warp.values[j][2 * half + 1]);
      }
      if (warp.n == 0 && lane % 4 == 0) {
        parts.best[index] = warp.best[half];
        parts.sum[index] = any != 0 ? warp.sum[half] : -1.0f;
      }
    }
    return;
  }
  // Through shared memory, so that rows leave in whole chunks.
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int h = warp.row(half);
    const float sink = h < heads ? *at<float>(p.sinks, first_head + h) : 0.0f;
    const float factor = any != 0 ? normaliser(warp.sum[half], warp.best[half], sink) : 0.0f;
    if (h < heads && warp.n == 0 && lane % 4 == 0) {
      *at<float>(p.lse, t, first_head + h) =
          any != 0 ? log_sum(warp.sum[half], warp.best[half]) : -kMinusInf;
    }
#pragma unroll
    for (int j = 0; j < W::kValueTiles; ++j) {
      unsigned char* to =
          shared.queries + chunk_offset<kRowChunks>(h, W::kDims / 8 * warp.n + j) + 4 * (lane % 4);
      *reinterpret_cast<std::uint32_t*>(to) =
          pair_of(warp.values[j][2 * half] * factor, warp.values[j][2 * half + 1] * factor);
    }
  }
  __syncthreads();
  for (int id = tid; id < heads * kRowChunks; id += kThreads) {
    const int h = id / kRowChunks;
    reinterpret_cast<uint4*>(at<Bits>(p.o, t, first_head + h))[id % kRowChunks] =
        *reinterpret_cast<const uint4*>(shared.queries +
                                        chunk_offset<kRowChunks>(h, id % kRowChunks));
  }
}

// A block a token and head, four dims a thread; a lane has up to two parts.
static __global__ void __launch_bounds__(kDim / 4)
    combine_kernel(const __grid_constant__ Params p, Parts parts) {
  static_assert(kMaxSplits == 64);
  const std::int64_t t = blockIdx.x;
  const std::int64_t h = blockIdx.y;
  const std::int64_t heads = p.q.shape[1];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const float sink = sink_of(p, h);
  const std::int64_t first = t * parts.splits * heads + h;
  const float* from = parts.values + first * kDim + threadIdx.x * 4;
  follow_kernel_before();
  float part[2] = {-1.0f, -1.0f}, top[2] = {kMinusInf, kMinusInf};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int s = lane + 32 * i;
    if (s >= parts.splits) continue;
    part[i] = parts.sum[first + s * heads];
    top[i] = parts.best[first + s * heads];
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (part[i] == -1.0f) top[i] = kMinusInf;
  }
  const bool any = __any_sync(kAllLanes, part[0] != -1.0f || part[1] != -1.0f) != 0;
  const float best = warp_max(fmaxf(top[0], top[1]));
  const float shift = best == kMinusInf ? 0.0f : best;
  float factor[2];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    factor[i] = part[i] == -1.0f ? 0.0f : exp2f(top[i] - shift);
    if (part[i] != -1.0f) sum += part[i] * factor[i];
  }
  sum = warp_sum(sum);
  float value[4] = {};
#pragma unroll 8
  for (int s = 0; s < parts.splits; ++s) {
    const float f = __shfl_sync(kAllLanes, s < 32 ? factor[0] : factor[1], s % 32);
    const float4 v = *reinterpret_cast<const float4*>(from + s * heads * kDim);
    value[0] += v.x * f;
    value[1] += v.y * f;
    value[2] += v.z * f;
    value[3] += v.w * f;
  }
  const float whole = any ? normaliser(sum, best, sink) : 0.0f;
  const uint2 bits = make_uint2(pair_of(value[0] * whole, value[1] * whole),
                                pair_of(value[2] * whole, value[3] * whole));
  *reinterpret_cast<uint2*>(at<Bits>(p.o, t, h) + 4 * threadIdx.x) = bits;
  if (threadIdx.x == 0) {
    *at<float>(p.lse, t, h) = any ? log_sum(sum, best) : nothing(p);
  }
}

// The same with a plan: the places of the token's splits, in their order. Rows of one split are
// done; those of none are empty.
static __global__ void __launch_bounds__(kDim / 4)
    combine_planned_kernel(const __grid_constant__ Params p, Parts parts) {
  const std::int64_t t = blockIdx.x, h = blockIdx.y, heads = p.q.shape[1];
  follow_kernel_before();
  const int first = *at<std::int32_t>(p.plan_rows, t, 0);
  const int count = *at<std::int32_t>(p.plan_rows, t, 1);
  if (count == 1) return;
  const auto part_at = [&](int s) { return of_split(p, first + s, AS_PLAN_PLACE) * heads + h; };
  float best = kMinusInf, sum = 0.0f;
  bool any = false;
  for (int s = 0; s < count; ++s) {
    const std::int64_t part = part_at(s);
    if (parts.sum[part] == -1.0f) continue;
    any = true;
    best = fmaxf(best, parts.best[part]);
  }
  const float shift = best == kMinusInf ? 0.0f : best;
  float value[4] = {};
  for (int s = 0; s < count; ++s) {
    const std::int64_t part = part_at(s);
    if (parts.sum[part] == -1.0f) continue;
    const float f = exp2f(parts.best[part] - shift);
    const float4 v = *reinterpret_cast<const float4*>(parts.values + part * kDim + threadIdx.x * 4);
    sum += parts.sum[part] * f;
    value[0] += v.x * f;
    value[1] += v.y * f;
    value[2] += v.z * f;
    value[3] += v.w * f;
  }
  const float whole = any ? normaliser(sum, best, *at<float>(p.sinks, h)) : 0.0f;
  const uint2 bits = make_uint2(pair_of(value[0] * whole, value[1] * whole),
                                pair_of(value[2] * whole, value[3] * whole));
  *reinterpret_cast<uint2*>(at<Bits>(p.o, t, h) + 4 * threadIdx.x) = bits;
  if (threadIdx.x == 0) *at<float>(p.lse, t, h) = any ? log_sum(sum, best) : -kMinusInf;
}

// Heads of a block in sixteens: as many as there are and as fit into the shared memory.
inline int row_blocks_for(std::int64_t heads, std::size_t shared_memory) {
  int blocks = heads <= 16 ? 1 : heads <= 32 ? 2 : 4;
  if (blocks == 4 && shared_memory < sizeof(Shared<4>)) blocks = 2;
  if (blocks == 2 && shared_memory < sizeof(Shared<2>)) blocks = 1;
  return blocks;
}

inline std::int64_t list_tiles(const as_tensor& indices) {
  return indices.rank == 2 ? (indices.shape[1] + kTile - 1) / kTile : 0;
}

// Blocks a token's tiles are split over: enough to fill the GPU, two tiles each at least.
inline int splits_for(const Params& p, const Gpu& gpu) {
  const std::int64_t heads_per_block = 16 * row_blocks_for(p.q.shape[1], gpu.shared_memory);
  const std::int64_t blocks =
      p.q.shape[0] * ((p.q.shape[1] + heads_per_block - 1) / heads_per_block);
  const bool extra = p.extra_cache.record != AS_RECORD_NONE;
  const std::int64_t tiles = list_tiles(p.indices) + (extra ? list_tiles(p.extra_indices) : 0);
  if (blocks == 0) return 1;
  const std::int64_t wanted = std::min<std::int64_t>(gpu.multiprocessors / blocks, (tiles + 1) / 2);
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, kMaxSplits));
}

// Partial results of all heads; splits: of every token, where there is no plan.
inline std::int64_t places_of(const Params& p, int splits) {
  if (has_plan(p)) return 2 * (p.plan_splits.shape[0] - p.q.shape[0]);
  return splits == 1 ? 0 : p.q.shape[0] * splits;
}

inline std::size_t parts_bytes(const Params& p, int splits) {
  const auto rows = static_cast<std::size_t>(places_of(p, splits) * p.q.shape[1]);
  return rows * (kDim + 2) * sizeof(float);
}

inline Parts parts_of(const Params& p, int splits, unsigned char* workspace) {
  Parts parts{};
  parts.splits = splits;
  const std::int64_t rows = places_of(p, splits) * p.q.shape[1];
  if (rows == 0) return parts;
  parts.values = reinterpret_cast<float*>(workspace);
  parts.best = parts.values + rows * kDim;
  parts.sum = parts.best + rows;
  return parts;
}

template <int row_blocks, Source source>
cudaError_t launch_kernel(const Params& p, const Caches& caches, const Parts& parts,
                          cudaStream_t stream) {
  constexpr int kHeads = 16 * row_blocks;
  constexpr int kBytes = sizeof(Shared<row_blocks>);
  const auto kernel = attention_kernel<row_blocks, source>;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (code != cudaSuccess) return code;
  const bool by_plan = has_plan(p);
  const dim3 grid(static_cast<unsigned>(by_plan ? p.plan_splits.shape[0] : p.q.shape[0]),
                  static_cast<unsigned>((p.q.shape[1] + kHeads - 1) / kHeads),
                  static_cast<unsigned>(by_plan ? 1 : parts.splits));
  const float scale = static_cast<float>(p.scale * 1.4426950408889634);
  kernel<<<grid, kThreads, kBytes, stream>>>(p, caches, parts, scale);
  return cudaGetLastError();
}

// early: the kernel before this one lets it start; the GPU is a Hopper.
inline int combine(const Params& p, const Parts& parts, cudaStream_t stream, bool early) {
  const dim3 grid(static_cast<unsigned>(p.q.shape[0]), static_cast<unsigned>(p.q.shape[1]));
  const auto kernel = has_plan(p) ? combine_planned_kernel : combine_kernel;
  return launch_early(early, stream, grid, kDim / 4, 0, kernel, p, parts);
}

// Whether there is anything to combine; what a plan says is known on the GPU alone.
inline bool combines(const Params& p, const Parts& parts) {
  return has_plan(p) || parts.splits > 1;
}

template <Source source>
int attend(const Params& p, const Launch& launch) {
  if (p.q.shape[0] == 0 || p.q.shape[1] == 0) return 0;
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  Caches caches{};
  caches.view[0] = cache_view(p.cache);
  if (source == Source::kValues) caches.view[0].page_stride = 2 * p.cache.data.stride[0];
  if (p.extra_cache.record != AS_RECORD_NONE) caches.view[1] = cache_view(p.extra_cache);
  const Parts parts = parts_of(p, splits_for(p, launch.gpu), launch.workspace);
  cudaError_t code = cudaSuccess;
  switch (row_blocks_for(p.q.shape[1], launch.gpu.shared_memory)) {
    case 1:
      code = launch_kernel<1, source>(p, caches, parts, stream);
      break;
    case 2:
      code = launch_kernel<2, source>(p, caches, parts, stream);
      break;
    default:
      code = launch_kernel<4, source>(p, caches, parts, stream);
      break;
  }
  if (code != cudaSuccess || !combines(p, parts)) return code;
  return combine(p, parts, stream, false);
}

}  // namespace attnscope::cuda::portable
