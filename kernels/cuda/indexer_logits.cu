// indexer_logits: the score of every entry that a token sees.
//
// Keys times heads as one matrix product in bf16, which holds e4m3 and scaled e2m1 values exactly,
// with fp32 sums. A block takes a token and a run of entries, a warp 32 keys at a time. The product
// does not care in which order the 128 dims come, so that each lane reads the 32 neighbouring dims
// 32c.. (c = lane % 4) of its keys, whole sectors, straight from the page; queries are laid out in
// shared memory to match.
#include <algorithm>

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/hopper_logits.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda {
namespace {

using Params = as_indexer_logits_params;

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kKeys = 32;  // of a warp at once
constexpr int kSteps = AS_INDEX_DIM / 16;

// Four values as two pairs of bf16.
struct Quad {
  std::uint32_t low, high;
};

// 32 dims of a key or query: those of block c, whose scale byte (MXFP4) is given.
template <bool fp4>
struct Block {
  static constexpr int kBytes = fp4 ? 16 : 32;
  std::uint32_t words[kBytes / 4];

  __device__ void load(const unsigned char* row, int c) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 v = __ldg(reinterpret_cast<const uint4*>(row + kBytes * c) + i);
      words[4 * i] = v.x;
      words[4 * i + 1] = v.y;
      words[4 * i + 2] = v.z;
      words[4 * i + 3] = v.w;
    }
  }
  __device__ Quad quad(int s, std::uint32_t scale) const {
    Quad q;
    if constexpr (fp4) {
      decode_e2m1x4(words[s / 2] >> (16 * (s % 2)), scale, &q.low, &q.high);
    } else {
      decode_e4m3x4(words[s], 127u, &q.low, &q.high);
    }
    return q;
  }
};

// Shared memory: queries as [step][head][c], then the head weights; heads padded to eights with 0.
struct Shared {
  uint2* queries;
  float* weights;
};

template <bool fp4>
__device__ Shared load_queries(const Params& p, std::int64_t t, int heads, int padded) {
  extern __shared__ unsigned char raw_shared[];
  Shared shared{reinterpret_cast<uint2*>(raw_shared),
                reinterpret_cast<float*>(raw_shared + padded * AS_INDEX_DIM * 2)};
  for (int i = static_cast<int>(threadIdx.x); i < padded * 4; i += kThreads) {
    const int head = i / 4;
    const int c = i % 4;
    const unsigned char* row = head < heads ? at<unsigned char>(p.q, t, head) : nullptr;
    const std::uint32_t scale =
        fp4 && head < heads ? at<unsigned char>(p.q_scale, t, head)[c] : 127u;
    constexpr int kPer = fp4 ? 2 : 4;  // bytes of four values
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      Quad q{0u, 0u};
      if (row != nullptr) {
        std::uint32_t codes = 0;
#pragma unroll
        for (int b = 0; b < kPer; ++b) {
          codes |= static_cast<std::uint32_t>(row[(kSteps * c + s) * kPer + b]) << (8 * b);
        }
        if constexpr (fp4) {
          decode_e2m1x4(codes, scale, &q.low, &q.high);
        } else {
          decode_e4m3x4(codes, scale, &q.low, &q.high);
        }
      }
      shared.queries[(s * padded + head) * 4 + c] = make_uint2(q.low, q.high);
    }
  }
  for (int i = static_cast<int>(threadIdx.x); i < padded; i += kThreads) {
    shared.weights[i] = i < heads ? *at<float>(p.weights, t, i) : 0.0f;
  }
  __syncthreads();
  return shared;
}

// Row of an entry of the token's request.
template <bool fp4>
__device__ RowAddress key_row(const Params& p, const CacheView& cache, int request, int entry) {
  std::int64_t slot;
  if (p.cache.addressing == AS_LOGICAL) {
    slot = std::int64_t{*at<std::int32_t>(p.table, request)} + entry;
  } else {
    AS_DEVICE_CHECK(entry / cache.rows < p.table.shape[1]);
    slot = std::int64_t{*at<std::int32_t>(p.table, request, entry / cache.rows)} * cache.rows +
           entry % cache.rows;
  }
  return cache_row(cache, slot, fp4 ? 64 : 128, 4);
}

// Keys lane / 4 + 8i of 32 as they lie in the cache, on their way.
template <bool fp4>
struct Raw {
  Block<fp4> blocks[4];
  std::uint32_t codes[4];  // MXFP4: scale byte of the lane's block
  float scales[4];         // FP8: of the key

  __device__ void load(const Params& p, const CacheView& cache, int request, int base, int end) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int entry = base + lane / 4 + 8 * i;
      blocks[i] = {};
      codes[i] = 127u;
      scales[i] = 1.0f;
      if (entry >= end) continue;
      const RowAddress row = key_row<fp4>(p, cache, request, entry);
      blocks[i].load(row.payload, lane % 4);
      if constexpr (fp4) {
        codes[i] = row.scales[lane % 4];
      } else {
        scales[i] = *reinterpret_cast<const float*>(row.scales);
      }
    }
  }
};

__device__ __forceinline__ double positive(float dot) {
  return static_cast<double>(dot < 0.0f ? 0.0f : dot);  // NaN stays
}

// Scores may cancel between heads of either sign, so no rounding is left to chance: each step of 16
// dims starts its sum afresh (tensor cores cut off where fp32 rounds), and head weights act in
// float64.
template <bool fp4>
__global__ void __launch_bounds__(kThreads)
    indexer_logits_kernel(Params p, CacheView cache, int padded, int keys_per_block) {
  const std::int64_t t = blockIdx.y;
  const int len = *at<std::int32_t>(p.lens, t);
  AS_DEVICE_CHECK(len >= 0 && len <= p.logits.shape[1]);
  const int begin = static_cast<int>(blockIdx.x) * keys_per_block;
  const int end = min(len, begin + keys_per_block);
  if (begin >= end) return;
  const int request = *at<std::int32_t>(p.token_to_req, t);
  const int heads = static_cast<int>(p.weights.shape[1]);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int c = lane % 4;
  const int first = begin + kKeys * static_cast<int>(threadIdx.x / 32);
  Raw<fp4> raw;
  raw.load(p, cache, request, first, end);
  const Shared shared = load_queries<fp4>(p, t, heads, padded);
  for (int base = first; base < end; base += kKeys * kWarps) {
    Quad keys[4][kSteps];
    float scales[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scales[i] = raw.scales[i];
#pragma unroll
      for (int s = 0; s < kSteps; ++s) keys[i][s] = raw.blocks[i].quad(s, raw.codes[i]);
    }
    raw.load(p, cache, request, base + kKeys * kWarps, end);
    double score[4] = {};
    for (int head = 0; head < padded; head += 8) {
      float dots[2][4] = {};
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint2 q = shared.queries[(s * padded + head + lane / 4) * 4 + c];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const std::uint32_t a[4] = {keys[2 * i][s].low, keys[2 * i + 1][s].low,
                                      keys[2 * i][s].high, keys[2 * i + 1][s].high};
          float part[4] = {};
          mma(part, a, q.x, q.y);
#pragma unroll
          for (int e = 0; e < 4; ++e) dots[i][e] += part[e];
        }
      }
      const float2 w = *reinterpret_cast<const float2*>(shared.weights + head + 2 * c);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* dot = dots[i / 2] + 2 * (i % 2);
        score[i] = fma(positive(dot[0]), static_cast<double>(w.x), score[i]);
        score[i] = fma(positive(dot[1]), static_cast<double>(w.y), score[i]);
      }
    }
    double mine = 0.0;
    float scale = 1.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      score[i] += __shfl_xor_sync(kAllLanes, score[i], 1);
      score[i] += __shfl_xor_sync(kAllLanes, score[i], 2);
      if (c == i) {
        mine = score[i];
        scale = scales[i];
      }
    }
    const int entry = base + lane / 4 + 8 * c;
    if (entry < end) {
      *at<float>(p.logits, t, entry) = static_cast<float>(mine * static_cast<double>(scale));
    }
  }
}

// Entries of a block: many, so that queries are decoded seldom, as long as the GPU stays full.
int keys_per_block(std::int64_t tokens, std::int64_t columns, int multiprocessors) {
  std::int64_t keys = kKeys * kWarps;
  while (keys < 2048 && tokens * ((columns + 2 * keys - 1) / (2 * keys)) >= 6 * multiprocessors) {
    keys *= 2;
  }
  return static_cast<int>(keys);
}

template <bool fp4>
cudaError_t launch_kernel(const Params& p, const Launch& launch) {
  const auto kernel = indexer_logits_kernel<fp4>;
  const int padded = static_cast<int>((p.weights.shape[1] + 7) / 8 * 8);
  const int bytes = padded * (AS_INDEX_DIM * 2 + 4);
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (code != cudaSuccess) return code;
  constexpr std::int64_t kMaxTokens = 65535;  // of a grid's second axis
  for (std::int64_t first = 0; first < p.weights.shape[0]; first += kMaxTokens) {
    Params part = p;
    for (as_tensor* t :
         {&part.q, &part.q_scale, &part.weights, &part.token_to_req, &part.lens, &part.logits}) {
      if (t->data == nullptr) continue;
      t->data =
          static_cast<unsigned char*>(t->data) + first * t->stride[0] * as_dtype_size(t->dtype);
    }
    const std::int64_t tokens = std::min(kMaxTokens, p.weights.shape[0] - first);
    const int keys = keys_per_block(tokens, p.logits.shape[1], launch.gpu.multiprocessors);
    const dim3 grid(static_cast<unsigned>((p.logits.shape[1] + keys - 1) / keys),
                    static_cast<unsigned>(tokens));
    kernel<<<grid, kThreads, bytes, static_cast<cudaStream_t>(launch.stream)>>>(
        part, cache_view(p.cache), padded, keys);
  }
  return cudaGetLastError();
}

// One value of a row, whose scale byte (MXFP4) is given.
template <bool fp4>
__device__ double value_of(const unsigned char* row, int d, std::uint32_t scale) {
  std::uint32_t low, high;
  if constexpr (fp4) {
    decode_e2m1x4(static_cast<std::uint32_t>(row[d / 2]) >> (4 * (d % 2)), scale, &low, &high);
  } else {
    decode_e4m3x4(row[d], 127u, &low, &high);
  }
  return static_cast<double>(bf16_to_float(static_cast<std::uint16_t>(low & 0xffffu)));
}

// AS_SCORES_BF16, a thread an entry: in float64, where dot products of these formats and sums of
// bf16 numbers are exact, so that each result is rounded once.
template <bool fp4>
__global__ void __launch_bounds__(kThreads) rounded_scores_kernel(Params p, CacheView cache) {
  const std::int64_t t = blockIdx.y;
  const int entry = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (entry >= *at<std::int32_t>(p.lens, t)) return;
  const RowAddress key = key_row<fp4>(p, cache, *at<std::int32_t>(p.token_to_req, t), entry);
  const int heads = static_cast<int>(p.weights.shape[1]);
  double sum = 0.0;
  for (int j = 0; j < heads; ++j) {
    const unsigned char* query = at<unsigned char>(p.q, t, j);
    double dot = 0.0;
    for (int d = 0; d < AS_INDEX_DIM; ++d) {
      const std::uint32_t q_scale =
          fp4 ? at<unsigned char>(p.q_scale, t, j)[d / AS_MXFP4_BLOCK] : 127u;
      const std::uint32_t k_scale = fp4 ? key.scales[d / AS_MXFP4_BLOCK] : 127u;
      dot += value_of<fp4>(query, d, q_scale) * value_of<fp4>(key.payload, d, k_scale);
    }
    const float rounded = round_bf16(dot);
    const float positive = rounded < 0.0f ? 0.0f : rounded;  // NaN stays
    sum += static_cast<double>(round_bf16(positive * round_bf16(*at<float>(p.weights, t, j))));
  }
  const float scale = fp4 ? 1.0f : *reinterpret_cast<const float*>(key.scales);
  at<float>(p.logits, t)[entry] = round_bf16(sum) * scale;
}

template <bool fp4>
int launch_rounded(const Params& p, const Launch& launch) {
  constexpr std::int64_t kMostTokens = 65535;  // of a grid's second axis
  for (std::int64_t first = 0; first < p.weights.shape[0]; first += kMostTokens) {
    Params part = p;
    for (as_tensor* t :
         {&part.q, &part.q_scale, &part.weights, &part.token_to_req, &part.lens, &part.logits}) {
      if (t->data == nullptr) continue;
      t->data =
          static_cast<unsigned char*>(t->data) + first * t->stride[0] * as_dtype_size(t->dtype);
    }
    const dim3 grid(static_cast<unsigned>((p.logits.shape[1] + kThreads - 1) / kThreads),
                    static_cast<unsigned>(std::min(kMostTokens, p.weights.shape[0] - first)));
    rounded_scores_kernel<fp4><<<grid, kThreads, 0, static_cast<cudaStream_t>(launch.stream)>>>(
        part, cache_view(p.cache));
  }
  return cudaGetLastError();
}

}  // namespace

int indexer_logits(const Params& p, const Launch& launch) {
  if (p.weights.shape[0] == 0 || p.logits.shape[1] == 0) return 0;
  if (p.weights.reserved == AS_SCORES_BF16) {
    return p.cache.record == AS_RECORD_INDEX_MXFP4 ? launch_rounded<true>(p, launch)
                                                   : launch_rounded<false>(p, launch);
  }
  if (hopper::takes(p, launch.gpu)) return hopper::indexer_logits(p, launch);
  return p.cache.record == AS_RECORD_INDEX_MXFP4 ? launch_kernel<true>(p, launch)
                                                 : launch_kernel<false>(p, launch);
}

}  // namespace attnscope::cuda
