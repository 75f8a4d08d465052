// paged_attention of few tokens of a request: a block has one token, up to 16 query heads of a KV
// head and a split of the rows. Each of its warps goes through every fourth tile of 16 rows by
// itself, copies two ahead of its steps, and the block adds up what its warps have. Weights are
// sums of two bf16, so that nothing but the order of sums is lost against fp32. Rows of codes go
// another way (paged_codes.cu).
//
// Bound by memory: all 16 rows of a step cost what one of them does.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/paged_parts.cuh"
#include "kernels/cuda/paged_steps.cuh"

namespace attnscope::cuda::paged {
namespace {

constexpr int kWarps = 4, kTile = 16, kHeads = 16;

// kDims: of a head in shared memory, the others zeros.
template <int kDims>
struct Shape {
  static constexpr int kChunks = kDims / 8;
  static constexpr int kTileBytes = kTile * kDims * 2;
  static constexpr int kStages = kDims > 128 ? 2 : 3;
  static constexpr int kStageBytes = 2 * kTileBytes;
  static constexpr int kQueryBytes = kHeads * kDims * 2;
  // Of a warp: its stages of keys and values; in their place its sums at the end.
  static constexpr int kWarpBytes = std::max(kStages * kStageBytes, kHeads* kDims * 4);
  static constexpr int kBytes = kQueryBytes + kWarps * kWarpBytes;
};

// Copies of tiles of a split by one warp, which asks for the slots of a tile one tile ahead.
template <int kDims>
struct Copier {
  using S = Shape<kDims>;
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
  __device__ __forceinline__ void copy(int stage) {
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

template <int kDims>
__device__ __forceinline__ void decode_token(const as_paged_attention_params& p, const Numbers& n,
                                             I64 t, I64 head_blocks, float* parts) {
  using S = Shape<kDims>;
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
  Copier<kDims> copier{p, n, seen, request, kv_head, base};
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
    const std::uint32_t k_at = base + stage * S::kStageBytes, v_at = k_at + S::kTileBytes;
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
    weights.take<kTile>(s, exponents, tile + 1 == tiles, row, firsts, ends, factor);
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
  add_warps<kDims, kWarps>(p, n, shared + S::kQueryBytes, S::kWarpBytes, of_warps, t, first_head,
                           heads, all.first < all.end, parts);
}

// listed: of others, else of all tokens.
template <int kDims, bool listed>
__global__ void __launch_bounds__(32 * kWarps)
    decode_kernel(const __grid_constant__ as_paged_attention_params p,
                  const __grid_constant__ Numbers n, Others others, I64 head_blocks, float* parts) {
  follow_kernel_before();
  if constexpr (!listed) {
    decode_token<kDims>(p, n, blockIdx.x, head_blocks, parts);
  } else {
    const int count = *others.list;
    for (int i = static_cast<int>(blockIdx.x); i < count; i += static_cast<int>(gridDim.x)) {
      decode_token<kDims>(p, n, others.list[1 + i], head_blocks, parts);
      __syncthreads();
    }
  }
}

template <int kDims>
int launch_decode(const as_paged_attention_params& p, const Numbers& n, float* parts,
                  const Others& others, I64 blocks, const Launch& launch) {
  constexpr int kBytes = Shape<kDims>::kBytes;
  const auto kernel =
      others.list != nullptr ? decode_kernel<kDims, true> : decode_kernel<kDims, false>;
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
  if (largest <= 64) return launch_decode<64>(p, n, parts, others, blocks, launch);
  if (largest <= 128) return launch_decode<128>(p, n, parts, others, blocks, launch);
  return launch_decode<256>(p, n, parts, others, blocks, launch);
}

}  // namespace attnscope::cuda::paged
