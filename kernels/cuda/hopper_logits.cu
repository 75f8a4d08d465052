// indexer_logits on Hopper for 17 to 64 heads and caches that hopper_page_logits.cu does not take.
//
// A warpgroup takes 64 keys at a time against all heads. Each lane decodes its share of the keys
// straight into the left operand's registers (e4m3 to fp16, scaled e2m1 to bf16, both exact) while
// the bytes of the next keys are on their way; queries are the right operand, in shared memory. The
// product does not care in which order the 128 dims come, so that a lane reads whole chunks of 16
// bytes and queries are laid out to match.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/hopper_logits.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace attnscope::cuda::hopper {
namespace {

using Params = as_indexer_logits_params;

constexpr int kHeads = 64;
constexpr int kKeys = 64;  // of a warpgroup at once
constexpr int kGroups = 2;
constexpr int kThreads = 128 * kGroups;
constexpr int kBlocks = 2;  // on a multiprocessor

struct alignas(1024) Shared {
  unsigned char queries[kHeads * AS_INDEX_DIM * 2];
  float weights[kHeads];
};
constexpr std::size_t kBytes = sizeof(Shared) + 1024;  // the base may have to move up

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kSteps = AS_INDEX_DIM / 16;
constexpr std::uint32_t kPanel = kHeads * 128;

struct Quad {
  std::uint32_t low, high;  // two pairs of values
};

// Two e4m3 codes to two fp16, NaN included.
__device__ __forceinline__ std::uint32_t decode_pair(std::uint32_t codes) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<std::uint16_t>(codes)));
  return pair;
}

// Four codes: e4m3 in 32 bits, or e2m1 in the lower 16 with their block's scale byte.
template <bool fp4>
__device__ __forceinline__ Quad decode(std::uint32_t codes, std::uint32_t scale) {
  Quad q;
  if constexpr (fp4) {
    decode_e2m1x4(codes, scale, &q.low, &q.high);
  } else {
    q.low = decode_pair(codes & 0xffffu);
    q.high = decode_pair(codes >> 16);
  }
  return q;
}

// First of the four dims that lane c of four has in a step of 16: FP8 rows are read in two chunks
// of 64 dims, MXFP4 rows in one of 128.
template <bool fp4>
__device__ __forceinline__ int first_dim(int step, int c) {
  return fp4 ? 32 * c + 4 * step : step / 4 * 64 + 16 * c + step % 4 * 4;
}

template <bool fp4>
__device__ void load_queries(Shared& shared, const Params& p, std::int64_t t, int heads) {
  const int tid = static_cast<int>(threadIdx.x);
  for (int i = tid; i < kHeads * kSteps; i += kThreads) {
    const int head = i / kSteps, step = i % kSteps;
    uint4 low = make_uint4(0u, 0u, 0u, 0u), high = low;
    if (head < heads) {
      const unsigned char* row = at<unsigned char>(p.q, t, head);
      std::uint32_t scales = 0u;
      if constexpr (fp4)
        scales = *reinterpret_cast<const std::uint32_t*>(at<unsigned char>(p.q_scale, t, head));
      Quad q[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int dim = first_dim<fp4>(step, c);
        const std::uint32_t codes = fp4 ? *reinterpret_cast<const std::uint16_t*>(row + dim / 2)
                                        : *reinterpret_cast<const std::uint32_t*>(row + dim);
        q[c] = decode<fp4>(codes, scales >> (8 * c) & 0xffu);
      }
      low = make_uint4(q[0].low, q[1].low, q[2].low, q[3].low);
      high = make_uint4(q[0].high, q[1].high, q[2].high, q[3].high);
    }
    *reinterpret_cast<uint4*>(shared.queries + panel_offset<kHeads>(head, 2 * step)) = low;
    *reinterpret_cast<uint4*>(shared.queries + panel_offset<kHeads>(head, 2 * step + 1)) = high;
  }
  for (int i = tid; i < kHeads; i += kThreads) {
    shared.weights[i] = i < heads ? *at<float>(p.weights, t, i) : 0.0f;
  }
}

// Where the lane's two keys of a tile lie: rows lane / 4 and lane / 4 + 8 of its warp's sixteen.
struct Places {
  std::int32_t block[2];
  std::int32_t row[2];

  __device__ void find(const Params& p, const CacheView& cache, int request, int first, int end) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int entry = first + 8 * i;
      block[i] = -1;
      row[i] = 0;
      if (entry >= end) continue;
      if (p.cache.addressing == AS_LOGICAL) {
        block[i] = *at<std::int32_t>(p.table, request);
        row[i] = entry;
      } else {
        const auto column =
            static_cast<std::uint32_t>(entry) / static_cast<std::uint32_t>(cache.rows);
        AS_DEVICE_CHECK(column < p.table.shape[1]);
        block[i] = *at<std::int32_t>(p.table, request, column);
        row[i] = entry - static_cast<std::int32_t>(column) * cache.rows;
      }
    }
  }
};

// The bytes of two keys that this lane decodes, on their way.
template <bool fp4>
struct Raw {
  static constexpr int kChunks = fp4 ? 1 : 2;
  uint4 chunk[2][kChunks];
  std::uint32_t scale[2];  // MXFP4: byte of the lane's block; FP8: bits of the key's scale

  __device__ void load(const Places& places, const CacheView& cache) {
    const int c = static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (uint4& bits : chunk[i]) bits = make_uint4(0u, 0u, 0u, 0u);
      scale[i] = fp4 ? 127u : 0x3f800000u;
      if (places.block[i] < 0) continue;
      // A logical cache has pages of one row: there the two add up to the row.
      const bool paged = cache.rows > 1;
      const std::int64_t page =
          std::int64_t{places.block[i]} + (paged ? 0 : std::int64_t{places.row[i]});
      const int row = paged ? places.row[i] : 0;
      AS_DEVICE_CHECK(page * cache.rows + row < cache.rows_total);
      const unsigned char* start = cache.base + page * cache.page_stride;
      const auto* payload = reinterpret_cast<const uint4*>(start + row * (fp4 ? 64 : 128)) + c;
#pragma unroll
      for (int k = 0; k < kChunks; ++k) chunk[i][k] = __ldg(payload + 4 * k);
      const unsigned char* scales = start + cache.scales + row * 4;
      scale[i] = fp4 ? scales[c] : *reinterpret_cast<const std::uint32_t*>(scales);
    }
  }

  __device__ Quad quad(int key, int step) const {
    const uint4& bits = chunk[key][fp4 ? 0 : step / 4];
    const int word = fp4 ? step / 2 : step % 4;
    const std::uint32_t codes = word == 0   ? bits.x
                                : word == 1 ? bits.y
                                : word == 2 ? bits.z
                                            : bits.w;
    return decode<fp4>(fp4 ? codes >> (16 * (step % 2)) & 0xffffu : codes, scale[key]);
  }
};

__device__ __forceinline__ float positive(float dot) {
  float result;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(dot));
  return result;
}

#endif

// Scores may cancel between heads of either sign: what four heads add up to is rounded to fp32, all
// else is summed in float64.
template <bool fp4>
__global__ void __launch_bounds__(kThreads, kBlocks)
    hopper_logits_kernel(Params p, CacheView cache, int keys_per_block) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const std::int64_t t = blockIdx.y;
  const int len = *at<std::int32_t>(p.lens, t);
  AS_DEVICE_CHECK(len >= 0 && len <= p.logits.shape[1]);
  const int begin = static_cast<int>(blockIdx.x) * keys_per_block;
  const int end = min(len, begin + keys_per_block);
  if (begin >= end) return;
  extern __shared__ unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<Shared*>(
      raw_shared + ((1024u - (shared_address(raw_shared) & 1023u)) & 1023u));
  const int request = *at<std::int32_t>(p.token_to_req, t);
  const int lane = static_cast<int>(threadIdx.x % 32), c = lane % 4;
  const int group = static_cast<int>(threadIdx.x / 128);
  const int mine = 16 * (static_cast<int>(threadIdx.x % 128) / 32) + lane / 4;
  constexpr int kStride = kKeys * kGroups;

  Places places;
  Raw<fp4> raw;
  int base = begin + kKeys * group;
  places.find(p, cache, request, base + mine, end);
  raw.load(places, cache);
  places.find(p, cache, request, base + kStride + mine, end);
  load_queries<fp4>(shared, p, t, static_cast<int>(p.weights.shape[1]));
  publish_shared();
  __syncthreads();
  const std::uint32_t queries = shared_address(shared.queries);

  for (; base < end; base += kStride) {
    std::uint32_t keys[kSteps][4];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const Quad a = raw.quad(0, s), b = raw.quad(1, s);
      keys[s][0] = a.low;
      keys[s][1] = b.low;
      keys[s][2] = a.high;
      keys[s][3] = b.high;
    }
    const std::uint32_t scale[2] = {raw.scale[0], raw.scale[1]};
    float dots[kHeads / 2];
    begin_steps();
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const std::uint32_t offset = static_cast<std::uint32_t>(s / 4) * kPanel + s % 4 * 32;
      step_64x64<fp4>(dots, keys[s], descriptor(queries + offset, 16), s > 0);
    }
    end_steps();
    raw.load(places, cache);
    places.find(p, cache, request, base + 2 * kStride + mine, end);
    wait_steps();
    double score[2] = {};
#pragma unroll
    for (int j = 0; j < kHeads / 8; j += 2) {
      const float2 w = *reinterpret_cast<const float2*>(shared.weights + 8 * j + 2 * c);
      const float2 v = *reinterpret_cast<const float2*>(shared.weights + 8 * j + 8 + 2 * c);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = positive(dots[4 * j + 2 * i]) * w.x;
        sum = fmaf(positive(dots[4 * j + 2 * i + 1]), w.y, sum);
        sum = fmaf(positive(dots[4 * j + 4 + 2 * i]), v.x, sum);
        sum = fmaf(positive(dots[4 * j + 4 + 2 * i + 1]), v.y, sum);
        score[i] += static_cast<double>(sum);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      score[i] += __shfl_xor_sync(kAllLanes, score[i], 1);
      score[i] += __shfl_xor_sync(kAllLanes, score[i], 2);
    }
    const int entry = base + mine + 8 * c;
    if (c < 2 && entry < end) {
      const double sum = c == 0 ? score[0] : score[1];
      const double unit =
          fp4 ? 1.0 : static_cast<double>(__uint_as_float(c == 0 ? scale[0] : scale[1]));
      *at<float>(p.logits, t, entry) = static_cast<float>(sum * unit);
    }
  }
#endif
}

// Entries of a block: few waves of blocks, and many entries, so that queries are decoded seldom.
int keys_per_block(std::int64_t tokens, std::int64_t columns, int multiprocessors) {
  constexpr std::int64_t kStep = kKeys * kGroups, kMost = 2048;
  const std::int64_t places = std::int64_t{kBlocks} * multiprocessors;
  const std::int64_t waves = std::max<std::int64_t>(1, tokens * columns / (places * kMost));
  const std::int64_t keys = (tokens * columns + places * waves - 1) / (places * waves);
  return static_cast<int>(std::max<std::int64_t>(1, (keys + kStep - 1) / kStep) * kStep);
}

template <bool fp4>
int launch_kernel(const Params& p, const Launch& launch) {
  const auto kernel = hopper_logits_kernel<fp4>;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (code != cudaSuccess) return code;
  const std::int64_t columns = p.logits.shape[1], tokens = p.weights.shape[0];
  const int keys = keys_per_block(tokens, columns, launch.gpu.multiprocessors);
  const dim3 grid(static_cast<unsigned>((columns + keys - 1) / keys),
                  static_cast<unsigned>(tokens));
  kernel<<<grid, kThreads, kBytes, static_cast<cudaStream_t>(launch.stream)>>>(
      p, cache_view(p.cache), keys);
  return launch_status();
}

bool aligned(const as_tensor& t) {
  return reinterpret_cast<std::uintptr_t>(t.data) % 4 == 0 && t.stride[0] % 4 == 0 &&
         t.stride[1] % 4 == 0;
}

}  // namespace

bool takes(const Params& p, const Gpu& gpu) {
  constexpr std::int64_t kMostTokens = 65535;  // of a grid's second axis
  const std::int64_t heads = p.weights.shape[1];
  return gpu.hopper && heads > 16 && heads <= kHeads && p.weights.shape[0] <= kMostTokens &&
         aligned(p.q) && (p.q_scale.data == nullptr || aligned(p.q_scale)) &&
         gpu.shared_memory >= kBytes;
}

int indexer_logits(const Params& p, const Launch& launch) {
  if (takes_pages(p, launch.gpu)) return page_logits(p, launch);
  return p.cache.record == AS_RECORD_INDEX_MXFP4 ? launch_kernel<true>(p, launch)
                                                 : launch_kernel<false>(p, launch);
}

}  // namespace attnscope::cuda::hopper
