// paged_attention of few tokens of a request: a block has one token, up to 16 query heads of a KV
// head and a split of the rows. Each of its warps goes through every fourth tile of 16 rows by
// itself, copies two ahead of its steps, and the block adds up what its warps have. Weights are
// sums of two bf16, so that nothing but the order of sums is lost against fp32.
//
// Codes are copied as they are, four tiles deep, and widened in shared memory to bf16, which holds
// them exactly. Scales of keys are multiplied into their scores, those of values into weights.
//
// Bound by memory: all 16 rows of a step cost what one of them does.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/paged_steps.cuh"

namespace attnscope::cuda::paged {
namespace {

constexpr int kWarps = 4, kTile = 16, kHeads = 16;

// kDims: of a head in shared memory, the others zeros.
template <int kDims, bool kCoded>
struct Shape {
  static constexpr int kChunks = kDims / 8;
  static constexpr int kTileBytes = kTile * kDims * 2;
  static constexpr int kCodeBytes = kTile * kDims;
  static constexpr int kScaleBytes = kTile * 8;  // a scale and a zero point a row
  static constexpr int kStages = (kDims > 128 ? 2 : 3) + (kCoded ? 1 : 0);
  static constexpr int kStageBytes = kCoded ? 2 * (kCodeBytes + kScaleBytes) : 2 * kTileBytes;
  static constexpr int kQueryBytes = kHeads * kDims * 2;
  // Of a warp: its stages of keys and values, and a tile for codes that are widened; in their place
  // its sums at the end.
  static constexpr int kWarpBytes =
      std::max(kStages * kStageBytes + (kCoded ? kTileBytes : 0), kHeads* kDims * 4);
  static constexpr int kBytes = kQueryBytes + kWarps * kWarpBytes;
};

// Copies of tiles of a split by one warp, which asks for the slots of a tile one tile ahead.
template <int kDims, bool kCoded>
struct Copier {
  using S = Shape<kDims, kCoded>;
  const as_paged_attention_params& p;
  const Numbers& n;
  const Seen& seen;
  I64 request, kv_head;
  std::uint32_t base;
  I64 slot = 0;  // of row lane % 16 of the tile that is copied next

  __device__ __forceinline__ void ask(I64 tile) {
    const I64 row = seen.first + tile * kTile + threadIdx.x % kTile;
    slot = row < seen.end ? slot_of(p, n, request, row) : -1;
  }
  // 16 codes at once; scales where rows have them.
  __device__ __forceinline__ void copy_codes(const cpu::KvCodes& c, std::uint32_t to, I64 size) {
    const I64 mine = slot >= 0 ? codes_at(c, slot, kv_head) : -1;
    const int lane = threadIdx.x;
#pragma unroll
    for (int i = 0; i < kTile * (kDims / 16) / 32; ++i) {
      const int row = (i * 32 + lane) / (kDims / 16), chunk = (i * 32 + lane) % (kDims / 16);
      const I64 from = __shfl_sync(kAllLanes, mine, row);
      const bool there = from >= 0 && chunk * 16 < size;
      copy_chunk(to + (i * 32 + lane) * 16, c.base + (there ? from + chunk * 16 : 0), there);
    }
    if (c.beside != nullptr || lane >= kTile) return;
    const unsigned char* scale = c.base + (slot >= 0 ? scales_at(c, slot, kv_head) : 0);
    copy_word(to + S::kCodeBytes + lane * 8, scale, slot >= 0);
    if (c.zero) copy_word(to + S::kCodeBytes + lane * 8 + 4, scale + 4, slot >= 0);
  }
  __device__ __forceinline__ void copy(int stage) {
    if constexpr (kCoded) {
      const std::uint32_t to = base + stage * S::kStageBytes;
      copy_codes(n.k_codes, to, p.q.shape[2]);
      copy_codes(n.v_codes, to + S::kStageBytes / 2, p.o.shape[2]);
      return;
    }
    const I64 k_mine = slot >= 0 ? offset_of(n.k, slot, kv_head) : -1;
    const I64 v_mine = slot >= 0 ? offset_of(n.v, slot, kv_head) : -1;
    const std::uint32_t k_to = base + stage * 2 * S::kTileBytes, v_to = k_to + S::kTileBytes;
    const int size = static_cast<int>(p.q.shape[2]), size_v = static_cast<int>(p.o.shape[2]);
    const int lane = threadIdx.x;
#pragma unroll
    for (int i = 0; i < kTile * S::kChunks / 32; ++i) {
      const int row = (i * 32 + lane) / S::kChunks, chunk = (i * 32 + lane) % S::kChunks;
      const I64 k_at = __shfl_sync(kAllLanes, k_mine, row);
      const I64 v_at = __shfl_sync(kAllLanes, v_mine, row);
      const std::uint32_t to = chunk_offset<S::kChunks>(row, chunk);
      const bool k_there = k_at >= 0 && chunk * 8 < size, v_there = v_at >= 0 && chunk * 8 < size_v;
      copy_chunk(k_to + to, n.k.base + (k_there ? k_at + chunk * 8 : 0), k_there);
      copy_chunk(v_to + to, n.v.base + (v_there ? v_at + chunk * 8 : 0), v_there);
    }
  }
};

// Codes and scales of 16 rows in shared memory.
template <int kDims>
struct CodedTile {
  const unsigned char* at;
  const cpu::KvCodes& codes;
  float beside;  // scale beside the cache

  __device__ __forceinline__ const float* of_row(int row) const {
    return reinterpret_cast<const float*>(at + kTile * kDims + row * 8);
  }
  __device__ __forceinline__ float scale(int row) const {
    return codes.beside != nullptr ? beside : *of_row(row);
  }
  // As bf16 before their scales, by a warp.
  __device__ __forceinline__ void widen(unsigned char* to) const {
    constexpr int kChunks = kDims / 8;
#pragma unroll
    for (int i = 0; i < kTile * (kDims / 16) / 32; ++i) {
      const int item = i * 32 + threadIdx.x;
      const int row = item / (kDims / 16), chunk = item % (kDims / 16);
      const float zero = codes.zero ? of_row(row)[1] : 0.0f;
      uint4 low, high;
      widen_codes(codes.code, reinterpret_cast<const uint4*>(at)[item], zero, &low, &high);
      *reinterpret_cast<uint4*>(to + chunk_offset<kChunks>(row, 2 * chunk)) = low;
      *reinterpret_cast<uint4*>(to + chunk_offset<kChunks>(row, 2 * chunk + 1)) = high;
    }
    __syncwarp();
  }
};

// Scores or weights s of 16 rows, times the scale of each.
template <int kDims>
__device__ __forceinline__ void scale_columns(float (&s)[2][4], const CodedTile<kDims>& tile) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int column = 8 * n + 2 * (threadIdx.x % 4);
    const float scales[2] = {tile.scale(column), tile.scale(column + 1)};
#pragma unroll
    for (int j = 0; j < 4; ++j) s[n][j] *= scales[j % 2];
  }
}

// Adds what the warps have of each head, and puts it out.
template <int kDims, bool kCoded>
__device__ __forceinline__ void finish(const as_paged_attention_params& p, const Numbers& n,
                                       const unsigned char* sums,
                                       const float (*of_warps)[2][kHeads], I64 t, I64 first_head,
                                       int heads, bool any, float* parts) {
  using S = Shape<kDims, kCoded>;
  const int size_v = static_cast<int>(p.o.shape[2]);
  const int thread = threadIdx.y * 32 + threadIdx.x;
  for (int item = thread; item < heads * (kDims / 4); item += 32 * kWarps) {
    const int head = item / (kDims / 4), dim = item % (kDims / 4) * 4;
    float best = minus_infinity(), sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) best = fmaxf(best, of_warps[w][0][head]);
    const float shift = best == minus_infinity() ? 0.0f : best;
    float values[4] = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float of_warp = of_warps[w][0][head], weight_sum = of_warps[w][1][head];
      const float weight = of_warp == minus_infinity() ? 0.0f : exp2_of(of_warp - shift);
      if (weight == 0.0f && weight_sum == weight_sum) continue;  // its NaN goes on
      sum += weight_sum * weight;
      const auto* row =
          reinterpret_cast<const float*>(sums + w * S::kWarpBytes) + head * kDims + dim;
#pragma unroll
      for (int i = 0; i < 4; ++i) values[i] = fmaf(row[i], weight, values[i]);
    }
    const I64 h = first_head + head;
    best *= kLn2;  // natural from here on
    if (n.splits > 1) {
      float* to = part_at(p, n, parts, t, h, blockIdx.z);
      if (dim == 0) {
        to[0] = best;
        to[1] = sum;
      }
      for (int i = 0; i < 4 && dim + i < size_v; ++i) to[kOthers + dim + i] = values[i];
      continue;
    }
    const float total = total_of(p, h, best, sum);
    std::uint16_t* o = at<std::uint16_t>(p.o, t, h);
    for (int i = 0; i < 4 && dim + i < size_v; ++i) {
      o[dim + i] = any ? float_to_bf16(values[i] / total) : std::uint16_t{0};
    }
    if (dim == 0) *at<float>(p.lse, t, h) = any ? lse_of(best, sum) : minus_infinity();
  }
}

template <int kDims, bool kCoded>
__device__ __forceinline__ void decode_token(const as_paged_attention_params& p, const Numbers& n,
                                             I64 t, I64 head_blocks, float* parts) {
  using S = Shape<kDims, kCoded>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float of_warps[kWarps][2][kHeads];
  const I64 kv_head = blockIdx.y / head_blocks, block = blockIdx.y % head_blocks;
  const I64 first_head = kv_head * n.group + block * kHeads;
  const int heads = static_cast<int>(min(I64{kHeads}, n.group - block * kHeads));
  const int lane = threadIdx.x, warp = threadIdx.y, thread = warp * 32 + lane;
  const I64 request = *at<std::int32_t>(p.token_to_req, t);
  const Seen all = seen_by(p, t, request);
  const Seen seen = part_of(all, n.splits, blockIdx.z);
  const int size = static_cast<int>(p.q.shape[2]);

  const std::uint32_t queries = shared_address(shared);
  for (int i = thread; i < kHeads * S::kChunks; i += 32 * kWarps) {
    const int head = i / S::kChunks, chunk = i % S::kChunks;
    const bool there = head < heads && chunk * 8 < size;
    copy_chunk(queries + chunk_offset<S::kChunks>(head, chunk),
               there ? at<std::uint16_t>(p.q, t, first_head + head, chunk * 8) : p.q.data, there);
  }
  end_copies();

  const std::int64_t tiles =
      seen.end > seen.first ? (seen.end - seen.first + kTile - 1) / kTile : 0;
  const std::uint32_t base = queries + S::kQueryBytes + warp * S::kWarpBytes;
  Copier<kDims, kCoded> copier{p, n, seen, request, kv_head, base};
  copier.ask(warp);
#pragma unroll
  for (int i = 0; i < S::kStages - 1; ++i) {
    if (warp + i * kWarps < tiles) copier.copy(i);
    end_copies();
    copier.ask(warp + (i + 1) * kWarps);
  }
  wait_copies<S::kStages - 1>();
  __syncthreads();  // the queries of all warps

  Exponents exponents{static_cast<float>(p.scale), static_cast<float>(p.soft_cap), {}, {}};
  for (int i = 0; i < 2; ++i) {
    const int head = lane / 4 + 8 * i;
    exponents.position[i] = static_cast<std::int32_t>(all.position);
    exponents.slope[i] = present(p.alibi_slopes) && head < heads
                             ? *at<float>(p.alibi_slopes, first_head + head)
                             : 0.0f;
  }
  const auto end = static_cast<std::int32_t>(seen.end);
  const std::int32_t firsts[2] = {0, 0}, ends[2] = {end, end};
  const bool in_rows = !kCoded || n.k_codes.beside == nullptr;
  const float k_beside = in_rows ? 1.0f : n.k_codes.beside[kv_head * n.k_codes.beside_step];
  const bool v_in_rows = !kCoded || n.v_codes.beside == nullptr;
  const float v_beside = v_in_rows ? 1.0f : n.v_codes.beside[kv_head * n.v_codes.beside_step];
  Weights weights;
  float o[kDims / 8][4] = {};
  int stage = 0;
  for (I64 tile = warp; tile < tiles; tile += kWarps) {
    {
      const I64 ahead = tile + (S::kStages - 1) * kWarps;
      const int to = stage == 0 ? S::kStages - 1 : stage - 1;
      if (ahead < tiles) copier.copy(to);
      end_copies();
      copier.ask(ahead + kWarps);
    }
    wait_copies<S::kStages - 1>();
    __syncwarp();
    std::uint32_t k_at = base + stage * S::kStageBytes, v_at = k_at + S::kTileBytes;
    unsigned char* own = shared + S::kQueryBytes + warp * S::kWarpBytes;
    unsigned char* widened = own + S::kStages * S::kStageBytes;
    const unsigned char* raw = own + stage * S::kStageBytes;
    const CodedTile<kDims> k_tile{raw, n.k_codes, k_beside};
    const CodedTile<kDims> v_tile{raw + S::kStageBytes / 2, n.v_codes, v_beside};
    if constexpr (kCoded) {
      k_at = v_at = shared_address(widened);
      k_tile.widen(widened);
    }
    float s[2][4] = {};
#pragma unroll
    for (int step = 0; step < kDims / 16; ++step) {
      const Matrix4 q = load_matrix4(
          queries + chunk_offset<S::kChunks>(lane / 8 % 2 * 8 + lane % 8, step * 2 + lane / 16));
      const Matrix4 k = load_matrix4(
          k_at + chunk_offset<S::kChunks>(lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
      mma(s[0], q.r, k.r[0], k.r[1]);
      mma(s[1], q.r, k.r[2], k.r[3]);
    }
    const auto row = static_cast<std::int32_t>(seen.first + tile * kTile);
    float factor[2];
    if constexpr (kCoded) scale_columns<kDims>(s, k_tile);
    weights.take<kTile>(s, exponents, tile + 1 == tiles, row, firsts, ends, factor);
    if constexpr (kCoded) {
      scale_columns<kDims>(s, v_tile);
      __syncwarp();  // the keys have been read
      v_tile.widen(widened);
    }
    std::uint32_t large[4], small[4];
    split_weights(s[0], s[1], large, small);
#pragma unroll
    for (int d = 0; d < kDims / 16; ++d) {
      const Matrix4 v = load_matrix4_transposed(
          v_at + chunk_offset<S::kChunks>(lane / 8 % 2 * 8 + lane % 8, d * 2 + lane / 16));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&sum)[4] = o[2 * d + half];
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j] *= factor[j / 2];
        mma(sum, large, v.r[2 * half], v.r[2 * half + 1]);
        mma(sum, small, v.r[2 * half], v.r[2 * half + 1]);
      }
    }
    stage = stage + 1 == S::kStages ? 0 : stage + 1;
    __syncwarp();
  }
  wait_copies<0>();
  weights.sum_up();
  __syncwarp();
  auto* sums = reinterpret_cast<float*>(shared + S::kQueryBytes + warp * S::kWarpBytes);
#pragma unroll
  for (int d = 0; d < kDims / 8; ++d) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float* to = sums + (lane / 4 + 8 * i) * kDims + 8 * d + 2 * (lane % 4);
      *reinterpret_cast<float2*>(to) = make_float2(o[d][2 * i], o[d][2 * i + 1]);
    }
  }
  if (lane % 4 == 0) {
    for (int i = 0; i < 2; ++i) {
      of_warps[warp][0][lane / 4 + 8 * i] = weights.best[i];
      of_warps[warp][1][lane / 4 + 8 * i] = weights.sum[i];
    }
  }
  __syncthreads();
  finish<kDims, kCoded>(p, n, shared + S::kQueryBytes, of_warps, t, first_head, heads,
                        all.first < all.end, parts);
}

// listed: of others, else of all tokens.
template <int kDims, bool listed, bool kCoded>
__global__ void __launch_bounds__(32 * kWarps)
    decode_kernel(const __grid_constant__ as_paged_attention_params p,
                  const __grid_constant__ Numbers n, Others others, I64 head_blocks, float* parts) {
  follow_kernel_before();
  if constexpr (!listed) {
    decode_token<kDims, kCoded>(p, n, blockIdx.x, head_blocks, parts);
  } else {
    const int count = *others.list;
    for (int i = static_cast<int>(blockIdx.x); i < count; i += static_cast<int>(gridDim.x)) {
      decode_token<kDims, kCoded>(p, n, others.list[1 + i], head_blocks, parts);
      __syncthreads();
    }
  }
}

template <int kDims, bool kCoded>
int launch_decode(const as_paged_attention_params& p, const Numbers& n, float* parts,
                  const Others& others, I64 blocks, const Launch& launch) {
  constexpr int kBytes = Shape<kDims, kCoded>::kBytes;
  const auto kernel = others.list != nullptr && !kCoded ? decode_kernel<kDims, true, false>
                                                        : decode_kernel<kDims, false, kCoded>;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (code != cudaSuccess) return code;
  const I64 head_blocks = (n.group + kHeads - 1) / kHeads;
  const dim3 grid(static_cast<unsigned>(blocks),
                  static_cast<unsigned>(as_cache_heads(&p.k_cache) * head_blocks),
                  static_cast<unsigned>(n.splits));
  return launch_early(launch.gpu.hopper, launch.stream, grid, dim3(32, kWarps), kBytes, kernel, p,
                      n, others, head_blocks, parts);
}

}  // namespace

int decode(const as_paged_attention_params& p, const Numbers& n, float* parts, const Others& others,
           I64 blocks, const Launch& launch) {
  const I64 largest = std::max(p.q.shape[2], p.o.shape[2]);
  const auto launch_for = [&]<int kDims> {
    return n.k_codes.code != AS_CODE_NONE
               ? launch_decode<kDims, true>(p, n, parts, others, blocks, launch)
               : launch_decode<kDims, false>(p, n, parts, others, blocks, launch);
  };
  if (largest <= 64) return launch_for.template operator()<64>();
  if (largest <= 128) return launch_for.template operator()<128>();
  return launch_for.template operator()<256>();
}

}  // namespace attnscope::cuda::paged
