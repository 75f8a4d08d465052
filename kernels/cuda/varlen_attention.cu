// varlen_attention: on Hopper by tiles (varlen_tiles.cu); for all else, where results are to be
// exact, and for masks, score functions, biases by distance and padding, on fp32 units: a warp a
// query head of a token, the heads of a KV head side by side in a block so that they find its rows
// in the L1 cache. 32 keys at a time: a lane scores one, then each lane weighs its dims of their
// values.
#include <algorithm>

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/mask_code.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/varlen_tiles.h"

namespace attnscope::cuda {
namespace {

using I64 = std::int64_t;
using Varlen = as_varlen_attention_params;

constexpr I64 kVarlenHeads = 8;  // of a block

__device__ __forceinline__ float varlen_nothing() { return __uint_as_float(0xff800000u); }

// Rows of a sequence as the kernel needs them.
struct VarlenRows {
  I64 number, query, queries, key, keys;
};

// The sequence of a token: the last one that begins at or before it and has it. None has a token
// behind the last start; of empty ones at the same start the last is taken, which is not empty.
__device__ __forceinline__ bool find_sequence(const Varlen& p, I64 t, VarlenRows& s) {
  I64 low = 0, high = p.cu_seqlens.shape[0] - 1;
  if (t >= *at<std::int32_t>(p.cu_seqlens, high)) return false;
  while (high - low > 1) {
    const I64 middle = (low + high) / 2;
    if (*at<std::int32_t>(p.cu_seqlens, middle) <= t) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const as_tensor& keys = present(p.cu_seqlens_k) ? p.cu_seqlens_k : p.cu_seqlens;
  s.number = low;
  s.query = *at<std::int32_t>(p.cu_seqlens, low);
  s.queries = *at<std::int32_t>(p.cu_seqlens, low + 1) - s.query;
  s.key = *at<std::int32_t>(keys, low);
  s.keys = *at<std::int32_t>(keys, low + 1) - s.key;
  if (!present(p.token_to_req)) return true;
  // The first token that is of no request, 32 at a time.
  I64 used = 0;
  for (; used < s.queries; used += 32) {
    const I64 mine = used + threadIdx.x;
    const bool there = mine < s.queries && *at<std::int32_t>(p.token_to_req, s.query + mine) >= 0;
    const unsigned missing = __ballot_sync(kAllLanes, !there);
    if (missing == 0) continue;
    used += __ffs(static_cast<int>(missing)) - 1;
    break;
  }
  s.queries = s.keys = used;
  return t < s.query + used;
}

// What the block mask says of 32 keys of a query's tile.
__device__ __forceinline__ int tile_state(const Varlen& p, const VarlenRows& s, I64 t, I64 h,
                                          I64 key) {
  if (!present(p.mask_code)) return AS_TILE_FULL;
  if (!present(p.tiles)) return AS_TILE_PARTIAL;
  const auto* row = at<std::uint8_t>(p.tiles, s.number, p.tiles.shape[1] > 1 ? h : 0,
                                     (t - s.query) / AS_MASK_QUERIES);
  return row[key / AS_MASK_KEYS * p.tiles.stride[3]];
}

template <bool vectors>
__device__ __forceinline__ float varlen_dot(const float* q, const std::uint16_t* k, I64 size) {
  float sum = 0.0f;
  if constexpr (vectors) {
    for (I64 d = 0; d < size; d += 8) {
      const uint4 word = *reinterpret_cast<const uint4*>(k + d);
      const std::uint32_t parts[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum = fmaf(q[d + 2 * i], bf16_to_float(static_cast<std::uint16_t>(parts[i])), sum);
        sum =
            fmaf(q[d + 2 * i + 1], bf16_to_float(static_cast<std::uint16_t>(parts[i] >> 16)), sum);
      }
    }
  } else {
    for (I64 d = 0; d < size; ++d) sum = fmaf(q[d], bf16_to_float(k[d]), sum);
  }
  return sum;
}

// kPart: values of a lane. kAsked: a mask, a score function or a bias by distance may be there.
// Grid: tokens, KV heads times blocks of their heads.
template <int kPart, bool vectors, bool kAsked>
__global__ void __launch_bounds__(32 * kVarlenHeads)
    varlen_attention_kernel(Varlen p, I64 group, I64 head_blocks) {
  __shared__ float queries[kVarlenHeads][32 * kPart];
  const I64 t = blockIdx.x, g = blockIdx.y / head_blocks;
  const I64 in_group = blockIdx.y % head_blocks * kVarlenHeads + threadIdx.y;
  if (in_group >= group) return;
  const I64 h = g * group + in_group, size = p.q.shape[2], size_v = p.o.shape[2];
  float* q = queries[threadIdx.y];
  for (I64 d = threadIdx.x; d < size; d += 32) {
    q[d] = bf16_to_float(*at<std::uint16_t>(p.q, t, h, d));
  }
  __syncwarp();

  VarlenRows s{};
  I64 first = 0, end = 0, place = 0;
  if (find_sequence(p, t, s)) {
    AS_DEVICE_CHECK(s.key >= 0 && s.keys >= 0 && s.key + s.keys <= p.k.shape[0]);
    place = s.keys - s.queries + t - s.query;
    end = s.keys;
    if (p.causal != 0) end = min(end, place + 1);
    if (p.window_right >= 0) end = min(end, place + p.window_right + 1);
    if (p.window_left >= 0) first = max(I64{0}, place - p.window_left);
  }
  bool any = !kAsked && first < end;
  const float slope = present(p.alibi_slopes) ? *at<float>(p.alibi_slopes, h) : 0.0f;
  const auto scale = static_cast<float>(p.scale), cap = static_cast<float>(p.soft_cap);
  float best = varlen_nothing(), sum = 0.0f;
  float values[kPart];
#pragma unroll
  for (int i = 0; i < kPart; ++i) values[i] = 0.0f;
  // Under a block mask no 32 keys are of two tiles.
  for (I64 tile = kAsked ? first / 32 * 32 : first; tile < end; tile += 32) {
    const I64 key = tile + threadIdx.x;
    const MaskPlace at_key{place, key, h, s.number};
    bool mine = key >= first && key < end;
    unsigned shown = kAllLanes;
    if constexpr (kAsked) {
      const int state = tile_state(p, s, t, h, tile);
      if (state == AS_TILE_EMPTY) continue;
      if (mine && state == AS_TILE_PARTIAL) mine = mask_shows(p.mask_code, at_key);
      // What a mask hides may hold NaN.
      shown = __ballot_sync(kAllLanes, mine);
      any = any || shown != 0;
    }
    float score = varlen_nothing();
    if (mine) {
      score = varlen_dot<vectors>(q, at<std::uint16_t>(p.k, s.key + key, g), size) * scale;
      if (cap > 0.0f) score = cap * tanhf(score / cap);
      if (slope != 0.0f) {
        score -= slope * static_cast<float>(place > key ? place - key : key - place);
      }
      if constexpr (kAsked) score = asked_score(p, at_key, key - place, score);
    }
    const float larger = fmaxf(best, warp_max(score));
    const float shift = larger == varlen_nothing() ? 0.0f : larger;
    const float weight = mine ? expf(score - shift) : 0.0f;
    const float old = best == varlen_nothing() ? 0.0f : expf(best - shift);
    sum = sum * old + warp_sum(weight);
    best = larger;
#pragma unroll
    for (int i = 0; i < kPart; ++i) values[i] *= old;
    const int rows = static_cast<int>(min(I64{32}, end - tile));
    for (int r = 0; r < rows; ++r) {
      const float w = __shfl_sync(kAllLanes, weight, r);
      if (kAsked && (shown >> r & 1) == 0) continue;
      const auto* v = at<std::uint16_t>(p.v, s.key + tile + r, g);
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        const I64 d = threadIdx.x + 32 * i;
        if (d < size_v) values[i] = fmaf(w, bf16_to_float(v[d]), values[i]);
      }
    }
  }
  auto* o = at<std::uint16_t>(p.o, t, h);
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
    const I64 d = threadIdx.x + 32 * i;
    if (d < size_v) o[d] = any ? float_to_bf16(values[i] / sum) : std::uint16_t{0};
  }
  const float shift = best == varlen_nothing() ? 0.0f : best;
  if (threadIdx.x == 0) *at<float>(p.lse, t, h) = any ? shift + logf(sum) : varlen_nothing();
}

template <int kPart>
int attend(const Varlen& p, const Launch& launch) {
  const I64 group = p.q.shape[1] / p.k.shape[1];
  const I64 head_blocks = (group + kVarlenHeads - 1) / kVarlenHeads;
  const dim3 grid(static_cast<unsigned>(p.q.shape[0]),
                  static_cast<unsigned>(p.k.shape[1] * head_blocks));
  const dim3 block(32, static_cast<unsigned>(std::min(group, kVarlenHeads)));
  const I64 apart = p.k.stride[0] | p.k.stride[1] | p.q.shape[2];
  const bool vectors = reinterpret_cast<std::uintptr_t>(p.k.data) % 16 == 0 && apart % 8 == 0;
  const auto kernel = asks_each_score(p) ? varlen_attention_kernel<kPart, false, true>
                      : vectors          ? varlen_attention_kernel<kPart, true, false>
                                         : varlen_attention_kernel<kPart, false, false>;
  kernel<<<grid, block, 0, static_cast<cudaStream_t>(launch.stream)>>>(p, group, head_blocks);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace

int varlen_attention(const as_varlen_attention_params& p, const Launch& launch) {
  if (p.q.shape[0] == 0 || p.q.shape[1] == 0) return 0;
  const bool plain = !asks_each_score(p) && p.token_to_req.data == nullptr;
  if (plain && varlen::takes(p, launch.gpu)) return varlen::attend_tiles(p, launch);
  const I64 largest = std::max(p.q.shape[2], p.o.shape[2]);
  if (largest <= 64) return attend<2>(p, launch);
  if (largest <= 128) return attend<4>(p, launch);
  if (largest <= 256) return attend<8>(p, launch);
  return attend<16>(p, launch);
}

}  // namespace attnscope::cuda
