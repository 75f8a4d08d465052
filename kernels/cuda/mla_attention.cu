// mla_attention and sparse_mla_attention: up to 64 heads of a token over tiles of 64 latent rows,
// with tensor cores of sm_80 on.
//
// Codes lie in shared memory as bf16, which holds them exactly, and serve as keys and as values.
// Their scales, any fp32 number, multiply sums of 128 dims of a score, and weights before the
// products of 128 dims of values; a weight enters as two bf16. The softmax runs online, in base 2.
// A token's tiles may be split over blocks, whose fp32 parts a second kernel combines in their
// order.
#include <algorithm>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/layout/mla_rows.h"

namespace attnscope::cuda {
namespace {

using Bits = std::uint16_t;
using I64 = std::int64_t;

constexpr int kLatent = AS_MLA_LATENT;
constexpr int kTile = 64;
constexpr int kBlocks = AS_LATENT_656_BLOCKS;
constexpr int kRowChunks = AS_MLA_WIDTH / 8;  // of 16 bytes, of a decoded row
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr I64 kMaxSplits = 64;
constexpr float kMinusInf = -__builtin_huge_valf();

// Both ops.
struct Latent {
  as_tensor q, o, lse;
  as_tensor lists;      // i32: indices [T,K], or the block table [R,C]
  as_tensor of_tokens;  // i32 [T]: topk_length, or token_to_req
  as_tensor positions, seq_lens;
  bool sparse, paged, bf16, vectors;
  unsigned char* base;
  I64 page, rows, total;  // bytes from page to page; rows of one, of all
  float scale;            // of a score, in base 2
  int splits;
  float* values;  // [T,H,S,512] weighted sums of a split token
  float* sums;    // [T,H,S,2] largest score in base 2; sum of weights, -1 where no row was there
};

__device__ __forceinline__ const unsigned char* row_at(const Latent& c, I64 slot) {
  AS_DEVICE_CHECK(slot < c.total);
  const int bytes = c.bf16 ? AS_LATENT_BF16_BYTES : AS_LATENT_656_BYTES;
  return c.base + slot / c.rows * c.page + slot % c.rows * bytes;
}

// Rows that a token may see, and where the n-th of them lies; negative = none.
__device__ __forceinline__ I64 entries_of(const Latent& c, I64 t) {
  const I64 number = *at<std::int32_t>(c.of_tokens, t);
  if (c.sparse) return max(number, I64{0});
  if (number < 0) return 0;
  AS_DEVICE_CHECK(number < c.lists.shape[0]);
  return min(I64{*at<std::int64_t>(c.positions, t)} + 1,
             I64{*at<std::int32_t>(c.seq_lens, number)});
}
__device__ __forceinline__ I64 slot_of(const Latent& c, I64 t, I64 n) {
  if (c.sparse) return *at<std::int32_t>(c.lists, t, n);
  const I64 request = *at<std::int32_t>(c.of_tokens, t);
  if (!c.paged) return I64{*at<std::int32_t>(c.lists, request)} + n;
  AS_DEVICE_CHECK(n / c.rows < c.lists.shape[1]);
  return I64{*at<std::int32_t>(c.lists, request, n / c.rows)} * c.rows + n % c.rows;
}

template <int row_blocks>
struct alignas(128) MlaShared {
  static constexpr int heads = 16 * row_blocks;
  unsigned char queries[heads * AS_MLA_WIDTH * 2];
  unsigned char rows[kTile * AS_MLA_WIDTH * 2];
  float weights[heads][kTile + 4];
  float scales[kBlocks][kTile];
  const unsigned char* from[kTile];  // nullptr: no row
  float parts[kWarps][heads];        // of each head, by warp column
};

__device__ __forceinline__ uint4 load_chunk(const unsigned char* from, bool vectors) {
  if (vectors) return __ldg(reinterpret_cast<const uint4*>(from));
  const auto* words = reinterpret_cast<const std::uint32_t*>(from);
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// The tile's rows as bf16, zeros where there is none: weight 0 times NaN would leak.
template <class Shared>
__device__ void decode_tile(const Latent& c, Shared& shared) {
  constexpr int kCodeChunks = kLatent / 16, kRopeChunks = AS_MLA_ROPE / 8;
  const int chunks = c.bf16 ? kRowChunks : kCodeChunks + kRopeChunks;
  for (int id = static_cast<int>(threadIdx.x); id < kTile * chunks; id += kThreads) {
    const int row = id / chunks, chunk = id % chunks;
    const unsigned char* from = shared.from[row];
    const bool codes = !c.bf16 && chunk < kCodeChunks;
    uint4 raw = make_uint4(0u, 0u, 0u, 0u);
    if (from != nullptr) {
      const int offset =
          c.bf16 || codes ? 16 * chunk : AS_LATENT_656_ROPE + 16 * (chunk - kCodeChunks);
      raw = load_chunk(from + offset, c.vectors);
    }
    if (!codes) {
      const int to = c.bf16 ? chunk : kLatent / 8 + chunk - kCodeChunks;
      *reinterpret_cast<uint4*>(shared.rows + chunk_offset<kRowChunks>(row, to)) = raw;
      continue;
    }
    uint4 low, high;
    decode_e4m3x16(raw, 127u, &low, &high);
    *reinterpret_cast<uint4*>(shared.rows + chunk_offset<kRowChunks>(row, 2 * chunk)) = low;
    *reinterpret_cast<uint4*>(shared.rows + chunk_offset<kRowChunks>(row, 2 * chunk + 1)) = high;
  }
  for (int id = static_cast<int>(threadIdx.x); id < kTile * kBlocks; id += kThreads) {
    const int row = id / kBlocks, block = id % kBlocks;
    const unsigned char* from = shared.from[row];
    float scale = from == nullptr ? 0.0f : 1.0f;
    if (from != nullptr && !c.bf16) {
      scale = *reinterpret_cast<const float*>(from + AS_LATENT_656_SCALES + 4 * block);
    }
    shared.scales[block][row] = scale;
  }
}

// Two fp32 as two bf16 each: the rounded ones, and what that cut off.
__device__ __forceinline__ void split_pair(float low, float high, std::uint32_t* rounded,
                                           std::uint32_t* rest) {
  *rounded = as_bits(__floats2bfloat162_rn(low, high));
  const float cut_low = low - __uint_as_float(*rounded << 16);
  const float cut_high = high - __uint_as_float(*rounded & 0xffff0000u);
  *rest = as_bits(__floats2bfloat162_rn(cut_low, cut_high));
}

// A warp's part: 16 heads (row block m) by a column of rows, then of value dims.
template <int row_blocks>
struct MlaWarp {
  using Shared = MlaShared<row_blocks>;
  static constexpr int kColumns = kWarps / row_blocks;
  static constexpr int kEntries = kTile / kColumns;
  static constexpr int kScoreTiles = kEntries / 8;
  static constexpr int kDims = kLatent / kColumns;
  static constexpr int kValueTiles = kDims / 8;
  static constexpr int kPiece = kDims < AS_LATENT_656_BLOCK ? kDims : AS_LATENT_656_BLOCK;

  int lane, m, n;
  float values[kValueTiles][4];
  float scores[kScoreTiles][4];
  float best[2] = {kMinusInf, kMinusInf};  // heads lane / 4 and lane / 4 + 8
  float sum[2] = {0.0f, 0.0f};             // this lane's share

  __device__ MlaWarp() {
    lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    m = warp / kColumns;
    n = warp % kColumns;
#pragma unroll
    for (auto& tile : values) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
  }
  __device__ int head(int half) const { return 16 * m + lane / 4 + 8 * half; }

  // sums (+)= queries * rows^T over 16-dim steps first .. last - 1.
  __device__ void multiply(const Shared& shared, int first, int last,
                           float (&sums)[kScoreTiles][4]) {
    const std::uint32_t queries = shared_address(shared.queries);
    const std::uint32_t rows = shared_address(shared.rows);
#pragma unroll 2
    for (int k = first; k < last; ++k) {
      const Matrix4 a =
          load_matrix4(queries + chunk_offset<kRowChunks>(16 * m + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) {
        // Two of the four matrices are of this step; lanes 16.. repeat them.
        const int row = kEntries * n + 8 * j + lane % 8;
        const Matrix4 b = load_matrix4(rows + chunk_offset<kRowChunks>(row, 2 * k + lane / 8 % 2));
        mma(sums[j], a.r, b.r[0], b.r[1]);
      }
    }
  }

  __device__ void score(const Shared& shared) {
#pragma unroll
    for (auto& tile : scores) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
    multiply(shared, kLatent / 16, AS_MLA_WIDTH / 16, scores);
#pragma unroll 1
    for (int block = 0; block < kBlocks; ++block) {
      float part[kScoreTiles][4] = {};
      multiply(shared, block * 8, block * 8 + 8, part);
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) {
        const float2 scale = *reinterpret_cast<const float2*>(
            &shared.scales[block][kEntries * n + 8 * j + 2 * (lane % 4)]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          scores[j][i] = fmaf(part[j][i], i % 2 == 0 ? scale.x : scale.y, scores[j][i]);
        }
      }
    }
  }

  __device__ bool there(const Shared& shared, int j, int i) const {
    return shared.from[kEntries * n + 8 * j + 2 * (lane % 4) + i % 2] != nullptr;
  }

  // Scores in base 2, masked; the warp's largest of every head.
  __device__ void mask(Shared& shared, float scale) {
    float most[2] = {kMinusInf, kMinusInf};
#pragma unroll
    for (int j = 0; j < kScoreTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[j][i] = there(shared, j, i) ? scores[j][i] * scale : kMinusInf;
        most[i / 2] = fmaxf(most[i / 2], scores[j][i]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = warp_max<4>(most[half]);
      if (lane % 4 == 0) shared.parts[n][head(half)] = most[half];
    }
  }

  // Weights of the tile into shared memory; values so far scaled to the new maximum.
  __device__ void weigh(Shared& shared) {
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = best[half];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) most = fmaxf(most, shared.parts[c][head(half)]);
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
      float w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w[i] = there(shared, j, i) ? exp2f(scores[j][i] - shift[i / 2]) : 0.0f;
        sum[i / 2] += w[i];
      }
      const int column = kEntries * n + 8 * j + 2 * (lane % 4);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<float2*>(&shared.weights[head(half)][column]) =
            make_float2(w[2 * half], w[2 * half + 1]);
      }
    }
  }

  // values += weights * rows for this warp's dims, piece by piece of one scale each.
  __device__ void add(const Shared& shared) {
    const std::uint32_t rows = shared_address(shared.rows);
#pragma unroll
    for (int piece = 0; piece < kDims / kPiece; ++piece) {
      const int first = kDims * n + kPiece * piece;
      const float* scales = shared.scales[first / AS_LATENT_656_BLOCK];
#pragma unroll
      for (int k = 0; k < kTile / 16; ++k) {
        std::uint32_t rounded[4], rest[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int column = 16 * k + 8 * (i / 2) + 2 * (lane % 4);
          const float2 w = *reinterpret_cast<const float2*>(&shared.weights[head(i % 2)][column]);
          const float2 s = *reinterpret_cast<const float2*>(scales + column);
          split_pair(w.x * s.x, w.y * s.y, &rounded[i], &rest[i]);
        }
#pragma unroll
        for (int j = 0; j < kPiece / 8; j += 2) {
          const Matrix4 b = load_matrix4_transposed(
              rows + chunk_offset<kRowChunks>(16 * k + lane % 16, first / 8 + j + lane / 16));
          float(*to)[4] = &values[kPiece / 8 * piece + j];
          mma(to[0], rounded, b.r[0], b.r[1]);
          mma(to[1], rounded, b.r[2], b.r[3]);
          mma(to[0], rest, b.r[0], b.r[1]);
          mma(to[1], rest, b.r[2], b.r[3]);
        }
      }
    }
  }

  // Sum of each head's weights over lanes and warps.
  __device__ void total(Shared& shared) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = warp_sum<4>(sum[half]);
      if (lane % 4 == 0) shared.parts[n][head(half)] = sum[half];
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = 0.0f;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sum[half] += shared.parts[c][head(half)];
    }
  }
};

// Grid: tokens, blocks of heads, splits.
template <int row_blocks>
__global__ void __launch_bounds__(kThreads, 1) latent_kernel(const __grid_constant__ Latent c) {
  using W = MlaWarp<row_blocks>;
  using Shared = MlaShared<row_blocks>;
  extern __shared__ unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<Shared*>(raw_shared);
  follow_kernel_before();
  const I64 t = blockIdx.x;
  const int first_head = static_cast<int>(blockIdx.y) * Shared::heads;
  const int heads = min(Shared::heads, static_cast<int>(c.q.shape[1]) - first_head);
  const int tid = static_cast<int>(threadIdx.x);
  for (int id = tid; id < Shared::heads * kRowChunks; id += kThreads) {
    const int h = id / kRowChunks;
    uint4 bits = make_uint4(0u, 0u, 0u, 0u);
    if (h < heads) {
      const auto* from = reinterpret_cast<const unsigned char*>(at<Bits>(c.q, t, first_head + h)) +
                         16 * (id % kRowChunks);
      const auto address = reinterpret_cast<std::uintptr_t>(from);
      if (address % 4 == 0) {
        bits = load_chunk(from, address % 16 == 0);
      } else {
        const auto* halves = reinterpret_cast<const Bits*>(from);
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          words[i] = halves[2 * i] | static_cast<std::uint32_t>(halves[2 * i + 1]) << 16;
        }
        bits = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
    *reinterpret_cast<uint4*>(shared.queries + chunk_offset<kRowChunks>(h, id % kRowChunks)) = bits;
  }
  const I64 entries = entries_of(c, t), tiles = (entries + kTile - 1) / kTile;
  const I64 begin = tiles * blockIdx.z / c.splits, end = tiles * (blockIdx.z + 1) / c.splits;
  W warp;
  bool any = false;
  for (I64 tile = begin; tile < end; ++tile) {
    bool mine = false;
    if (tid < kTile) {
      const I64 entry = tile * kTile + tid;
      const I64 slot = entry < entries ? slot_of(c, t, entry) : -1;
      shared.from[tid] = slot >= 0 ? row_at(c, slot) : nullptr;
      mine = slot >= 0;
    }
    any = __syncthreads_or(mine ? 1 : 0) != 0 || any;
    decode_tile(c, shared);
    __syncthreads();
    warp.score(shared);
    warp.mask(shared, c.scale);
    __syncthreads();
    warp.weigh(shared);
    __syncthreads();
    warp.add(shared);
    __syncthreads();
  }
  warp.total(shared);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (warp.head(half) >= heads) continue;
    const I64 h = first_head + warp.head(half);
    const bool writes = warp.n == 0 && warp.lane % 4 == 0;
    const int dim = W::kDims * warp.n + 2 * (warp.lane % 4);
    if (c.splits > 1) {
      const I64 part = (t * c.q.shape[1] + h) * c.splits + blockIdx.z;
      if (writes) {
        c.sums[2 * part] = warp.best[half];
        c.sums[2 * part + 1] = any ? warp.sum[half] : -1.0f;
      }
#pragma unroll
      for (int j = 0; j < W::kValueTiles; ++j) {
        *reinterpret_cast<float2*>(c.values + part * kLatent + dim + 8 * j) =
            make_float2(warp.values[j][2 * half], warp.values[j][2 * half + 1]);
      }
      continue;
    }
    const float factor = any ? 1.0f / warp.sum[half] : 0.0f;
    if (writes) {
      *at<float>(c.lse, t, h) =
          any ? portable::log_sum(warp.sum[half], warp.best[half]) : kMinusInf;
    }
    Bits* to = at<Bits>(c.o, t, h) + dim;
#pragma unroll
    for (int j = 0; j < W::kValueTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        to[8 * j + i] = any ? float_to_bf16(warp.values[j][2 * half + i] * factor) : Bits{0};
      }
    }
  }
}

// A block a token and head, four dims a thread.
__global__ void __launch_bounds__(kLatent / 4)
    latent_combine_kernel(const __grid_constant__ Latent c) {
  follow_kernel_before();
  const I64 t = blockIdx.x, h = blockIdx.y;
  const I64 first = (t * c.q.shape[1] + h) * c.splits;
  float best = kMinusInf, sum = 0.0f;
  bool any = false;
  for (int s = 0; s < c.splits; ++s) {
    if (c.sums[2 * (first + s) + 1] == -1.0f) continue;
    any = true;
    best = fmaxf(best, c.sums[2 * (first + s)]);
  }
  const float shift = best == kMinusInf ? 0.0f : best;
  float value[4] = {};
  for (int s = 0; s < c.splits; ++s) {
    const float its = c.sums[2 * (first + s) + 1];
    if (its == -1.0f) continue;
    const float f = exp2f(c.sums[2 * (first + s)] - shift);
    const float4 v =
        *reinterpret_cast<const float4*>(c.values + (first + s) * kLatent + 4 * threadIdx.x);
    sum += its * f;
    value[0] += v.x * f;
    value[1] += v.y * f;
    value[2] += v.z * f;
    value[3] += v.w * f;
  }
  const float factor = any ? 1.0f / sum : 0.0f;
  Bits* to = at<Bits>(c.o, t, h) + 4 * threadIdx.x;
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = any ? float_to_bf16(value[i] * factor) : Bits{0};
  if (threadIdx.x == 0) *at<float>(c.lse, t, h) = any ? portable::log_sum(sum, best) : kMinusInf;
}

// Heads of a block in sixteens: as many as there are and as fit into the shared memory.
int row_blocks_for(I64 heads, const Gpu& gpu) {
  if (heads > 32 && gpu.shared_memory >= sizeof(MlaShared<4>)) return 4;
  if (heads > 16 && gpu.shared_memory >= sizeof(MlaShared<2>)) return 2;
  return 1;
}

// Blocks that a token's tiles are split over: as many as fill the GPU, two tiles each at least.
int splits_for(const as_tensor& q, I64 most_entries, const Gpu& gpu) {
  const I64 per_block = 16 * row_blocks_for(q.shape[1], gpu);
  const I64 blocks = q.shape[0] * ((q.shape[1] + per_block - 1) / per_block);
  if (blocks == 0) return 1;
  const I64 tiles = (most_entries + kTile - 1) / kTile;
  const I64 wanted = std::min<I64>(gpu.multiprocessors / blocks, (tiles + 1) / 2);
  return static_cast<int>(std::clamp<I64>(wanted, 1, kMaxSplits));
}
int splits_for(const as_mla_attention_params& p, const Gpu& gpu) {
  const I64 rows = p.cache.addressing == AS_PAGED ? p.cache.rows_per_block : 1;
  return splits_for(p.q, p.table.shape[1] * rows, gpu);
}
int splits_for(const as_sparse_mla_attention_params& p, const Gpu& gpu) {
  return splits_for(p.q, p.indices.shape[1], gpu);
}

std::size_t parts_bytes(const as_tensor& q, int splits) {
  if (splits == 1) return 0;
  return static_cast<std::size_t>(q.shape[0] * q.shape[1] * splits) * (kLatent + 2) * sizeof(float);
}

template <class Params>
Latent latent_of(const Params& p, const Launch& launch) {
  Latent c{};
  c.q = p.q;
  c.o = p.o;
  c.lse = p.lse;
  c.paged = p.cache.addressing == AS_PAGED;
  c.bf16 = p.cache.record == AS_RECORD_BF16;
  c.base = static_cast<unsigned char*>(p.cache.data.data);
  c.page = p.cache.data.stride[0];
  c.rows = c.paged ? p.cache.rows_per_block : 1;
  c.total = p.cache.data.shape[0] * c.rows;
  c.vectors =
      (reinterpret_cast<std::uintptr_t>(c.base) | static_cast<std::uintptr_t>(c.page)) % 16 == 0;
  c.scale = static_cast<float>(p.scale * 1.4426950408889634);
  c.splits = splits_for(p, launch.gpu);
  c.values = reinterpret_cast<float*>(launch.workspace);
  c.sums = c.values + p.q.shape[0] * p.q.shape[1] * c.splits * kLatent;
  return c;
}

template <int row_blocks>
int start(const Latent& c, const Launch& launch) {
  constexpr int kBytes = sizeof(MlaShared<row_blocks>);
  const auto kernel = latent_kernel<row_blocks>;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (code != cudaSuccess) return code;
  const dim3 grid(static_cast<unsigned>(c.q.shape[0]),
                  static_cast<unsigned>((c.q.shape[1] + 16 * row_blocks - 1) / (16 * row_blocks)),
                  static_cast<unsigned>(c.splits));
  return launch_early(launch.gpu.hopper, launch.stream, grid, kThreads, kBytes, kernel, c);
}

int attend(const Latent& c, const Launch& launch) {
  if (c.q.shape[0] == 0 || c.q.shape[1] == 0) return 0;
  int status = 0;
  switch (row_blocks_for(c.q.shape[1], launch.gpu)) {
    case 1:
      status = start<1>(c, launch);
      break;
    case 2:
      status = start<2>(c, launch);
      break;
    default:
      status = start<4>(c, launch);
      break;
  }
  if (status != 0 || c.splits == 1) return status;
  const dim3 grid(static_cast<unsigned>(c.q.shape[0]), static_cast<unsigned>(c.q.shape[1]));
  return launch_early(launch.gpu.hopper, launch.stream, grid, kLatent / 4, 0, latent_combine_kernel,
                      c);
}

}  // namespace

std::size_t workspace_bytes(const as_mla_attention_params& p, const Gpu& gpu) {
  return parts_bytes(p.q, splits_for(p, gpu));
}
std::size_t workspace_bytes(const as_sparse_mla_attention_params& p, const Gpu& gpu) {
  if (hopper::takes(p, gpu)) {
    const as_sparse_attention_params call = hopper::as_sparse_call(p);
    const hopper::Split split = hopper::split_of(call, gpu);
    return portable::parts_bytes(call, split.cluster ? 1 : split.blocks);
  }
  return parts_bytes(p.q, splits_for(p, gpu));
}

int mla_attention(const as_mla_attention_params& p, const Launch& launch) {
  Latent c = latent_of(p, launch);
  c.lists = p.table;
  c.of_tokens = p.token_to_req;
  c.positions = p.positions;
  c.seq_lens = p.seq_lens;
  return attend(c, launch);
}

int sparse_mla_attention(const as_sparse_mla_attention_params& p, const Launch& launch) {
  if (p.q.shape[0] > 0 && hopper::takes(p, launch.gpu)) {
    return hopper::sparse_attention(hopper::as_sparse_call(p), launch);
  }
  Latent c = latent_of(p, launch);
  c.sparse = true;
  c.lists = p.indices;
  c.of_tokens = p.topk_length;
  return attend(c, launch);
}

}  // namespace attnscope::cuda
