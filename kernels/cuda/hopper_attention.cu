// sparse_attention on Hopper for more than 32 heads.
//
// A block takes one token, 64 heads and a run of tiles of 64 list entries. Two warpgroups gather
// the rows of alternate tiles and decode them to bf16, each into a shared buffer of its own, while
// two others compute: each has all 64 heads by half of the 512 value dims, and computes the scores,
// maxima and weights of the whole tile by itself, so that the two need nothing of each other.
// Scores, weights and sums stay in registers. As in the portable kernel the softmax runs online in
// base 2, and a weight enters the second product as two bf16.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/cuda/wgmma.cuh"

namespace attnscope::cuda::hopper {
namespace {

using portable::Caches;
using portable::kDim;
using portable::kMinusInf;
using portable::kRowChunks;
using portable::kTile;
using portable::Lists;
using portable::Parts;

constexpr int kHeads = 64;
constexpr int kComputing = 256;  // threads
constexpr int kGatherers = 2;    // warpgroups, which take alternate tiles, each for its own buffer
constexpr int kGathering = 128;  // threads of one
constexpr int kThreads = kComputing + kGatherers * kGathering;
constexpr int kPartners = kComputing + kGathering;  // at a buffer's barriers
struct alignas(1024) Shared {
  unsigned char queries[kHeads * kDim * 2];
  unsigned char rows[kGatherers][kTile * kDim * 2];
  unsigned char valid[kGatherers][kTile];
};
constexpr std::size_t kBytes = sizeof(Shared) + 1024;  // the base may have to move up

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kHalf = kDim / 2;  // value dims of a computing warpgroup
constexpr std::uint32_t kPanel = kTile * 128;
constexpr int kFull = 1, kEmpty = 3, kDone = 5;  // barriers; two of the first two

// The rows of every other tile, one row by two threads, which take alternate chunks of 16 bytes.
// Chunks come in six batches a tile; two or three of them are on their way while another is
// decoded, across tiles too.
struct Gather {
  static constexpr int kCodes = 14;  // of a thread's 18 chunks; the others hold bf16
  static constexpr int kBatch = 3;
  struct Row {
    const uint4* payload;  // nullptr: not valid
    uint2 scales;
  };

  const Lists& lists;
  const Caches& caches;
  int row, half;
  uint4 chunk[3][kBatch];
  Row now, next;

  __device__ Gather(const Lists& its_lists, const Caches& its_caches, int thread)
      : lists(its_lists), caches(its_caches), half(thread % 2) {
    // The four rows that a quarter of a warp stores at once lie in different banks.
    const int pair = thread / 2;
    row = (pair & ~6) | (pair & 2) << 1 | (pair & 4) >> 1;
  }

  __device__ int slot(int tile, int end) const {
    return tile < end ? portable::slot_of(lists, tile, row) : -1;
  }
  __device__ Row find(int tile, int slot) const {
    const RowAddress at = portable::row_of<portable::Source::kRecords>(lists, caches, tile, slot);
    const auto* payload = reinterpret_cast<const uint4*>(at.payload);
    return {payload == nullptr ? nullptr : payload + half,
            portable::scales_of<portable::Source::kRecords>(at)};
  }

  template <int batch>
  __device__ void load(uint4 (&to)[kBatch], const Row& from) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      to[i] = make_uint4(0u, 0u, 0u, 0u);
      if (from.payload != nullptr) to[i] = __ldg(from.payload + 2 * (kBatch * batch + i));
    }
  }

  template <int batch>
  __device__ void store(const uint4 (&from)[kBatch], unsigned char* rows) const {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int n = kBatch * batch + i;
      const int c = 2 * n + half;
      if (n >= kCodes) {
        *reinterpret_cast<uint4*>(rows + panel_offset<kTile>(row, c + kCodes * 2)) = from[i];
        continue;
      }
      const int block = n / 2;  // of 64 values
      const std::uint32_t scale =
          (block < 4 ? now.scales.x >> (8 * block) : now.scales.y >> (8 * block - 32)) & 0xffu;
      uint4 low, high;
      decode_e4m3x16(from[i], scale, &low, &high);
      *reinterpret_cast<uint4*>(rows + panel_offset<kTile>(row, 2 * c)) = low;
      *reinterpret_cast<uint4*>(rows + panel_offset<kTile>(row, 2 * c + 1)) = high;
    }
  }

  __device__ void tiles(Shared& shared, int buffer, int begin, int end) {
    const int first = begin + buffer;
    if (first >= end) return;
    unsigned char* rows = shared.rows[buffer];
    now = find(first, slot(first, end));
    load<0>(chunk[0], now);
    load<1>(chunk[1], now);
    load<2>(chunk[2], now);
    int following = slot(first + kGatherers, end);
    for (int t = first; t < end; t += kGatherers) {
      next = find(t + kGatherers, following);
      following = slot(t + 2 * kGatherers, end);
      if (t != first) barrier_wait(kEmpty + buffer, kPartners);
      store<0>(chunk[0], rows);
      load<3>(chunk[0], now);
      store<1>(chunk[1], rows);
      load<4>(chunk[1], now);
      store<2>(chunk[2], rows);
      load<5>(chunk[2], now);
      store<3>(chunk[0], rows);
      load<0>(chunk[0], next);
      store<4>(chunk[1], rows);
      load<1>(chunk[1], next);
      store<5>(chunk[2], rows);
      load<2>(chunk[2], next);
      if (half == 0) shared.valid[buffer][row] = now.payload != nullptr ? 1 : 0;
      publish_shared();
      barrier_arrive(kFull + buffer, kPartners);
      now = next;
    }
  }
};

__device__ __forceinline__ std::uint32_t pair_of(float low, float high) {
  return as_bits(__floats2bfloat162_rn(low, high));
}

// A computing warpgroup's registers: this thread has rows lane / 4 and lane / 4 + 8 of its warp's
// sixteen heads.
struct Compute {
  float values[kHalf / 2];
  float best[2] = {kMinusInf, kMinusInf};
  float sum[2] = {0.0f, 0.0f};  // this lane's share
  bool any = false;

  __device__ void tile(const Shared& shared, int buffer, int group, float scale) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const std::uint32_t queries = shared_address(shared.queries);
    const std::uint32_t rows = shared_address(shared.rows[buffer]);
    float scores[kTile / 2];
    begin_steps();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      const std::uint32_t offset = static_cast<std::uint32_t>(k / 4) * kPanel + k % 4 * 32;
      step_64x64(scores, descriptor(queries + offset, 16), descriptor(rows + offset, 16), k > 0);
    }
    end_steps();
    wait_steps();

    float most[2] = {best[0], best[1]};
#pragma unroll
    for (int j = 0; j < kTile / 8; ++j) {
      const std::uint32_t ok =
          *reinterpret_cast<const std::uint16_t*>(shared.valid[buffer] + 8 * j + 2 * (lane % 4));
      any = any || ok != 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& s = scores[4 * j + i];
        s = (ok >> (8 * (i % 2)) & 1u) != 0 ? s * scale : kMinusInf;
        most[i / 2] = fmaxf(most[i / 2], s);
      }
    }
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = warp_max<4>(most[half]);
      shift[half] = most[half] == kMinusInf ? 0.0f : most[half];
      const float old = exp2f(best[half] - shift[half]);
      best[half] = most[half];
      sum[half] *= old;
#pragma unroll
      for (int j = 0; j < kHalf / 8; ++j) {
        values[4 * j + 2 * half] *= old;
        values[4 * j + 2 * half + 1] *= old;
      }
    }
    // Weights as the left operand of 16 entries each: rounded, and what the rounding cut off.
    std::uint32_t weights[kTile / 16][4], rest[kTile / 16][4];
#pragma unroll
    for (int j = 0; j < kTile / 8; ++j) {
      const std::uint32_t ok =
          *reinterpret_cast<const std::uint16_t*>(shared.valid[buffer] + 8 * j + 2 * (lane % 4));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float w[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          w[i] =
              (ok >> (8 * i) & 1u) != 0 ? exp2f(scores[4 * j + 2 * half + i] - shift[half]) : 0.0f;
          sum[half] += w[i];
        }
        const std::uint32_t packed = pair_of(w[0], w[1]);
        weights[j / 2][2 * (j % 2) + half] = packed;
        rest[j / 2][2 * (j % 2) + half] = pair_of(w[0] - __uint_as_float(packed << 16),
                                                  w[1] - __uint_as_float(packed & 0xffff0000u));
      }
    }
    begin_steps();
    const std::uint32_t first = rows + static_cast<std::uint32_t>(group) * (kHalf / 64) * kPanel;
#pragma unroll
    for (int k = 0; k < kTile / 16; ++k) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const std::uint32_t from = first + static_cast<std::uint32_t>(2 * part) * kPanel;
        const std::uint64_t b = descriptor(from + static_cast<std::uint32_t>(k) * 2048, kPanel);
        step_64x128(values + 64 * part, weights[k], b);
        step_64x128(values + 64 * part, rest[k], b);
      }
    }
    end_steps();
    wait_steps();
  }
};

#endif

__global__ void __launch_bounds__(kThreads, 1)
    hopper_attention_kernel(as_sparse_attention_params p, Caches given, Parts parts, float scale) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char raw_shared[];
  __shared__ Lists lists;
  __shared__ Caches caches;
  auto& shared = *reinterpret_cast<Shared*>(
      raw_shared + ((1024u - (shared_address(raw_shared) & 1023u)) & 1023u));
  const std::int64_t t = blockIdx.x;
  const int first_head = static_cast<int>(blockIdx.y) * kHeads;
  const int heads = min(kHeads, static_cast<int>(p.q.shape[1]) - first_head);
  const int tid = static_cast<int>(threadIdx.x);
  if (tid == 0) {
    lists = portable::lists_of(p, t);
    caches = given;
  }
  for (int id = tid; id < kHeads * kRowChunks; id += kThreads) {
    const int h = id / kRowChunks, c = id % kRowChunks;
    uint4 bits = make_uint4(0u, 0u, 0u, 0u);
    if (h < heads) {
      bits = reinterpret_cast<const uint4*>(at<std::uint16_t>(p.q, t, first_head + h))[c];
    }
    *reinterpret_cast<uint4*>(shared.queries + panel_offset<kHeads>(h, c)) = bits;
  }
  publish_shared();
  __syncthreads();
  const int tiles = lists.tiles[0] + lists.tiles[1];
  const int split = static_cast<int>(blockIdx.z);
  const int begin = tiles * split / parts.splits;
  const int end = tiles * (split + 1) / parts.splits;

  if (tid >= kComputing) {
    // 2 * 64 + 2 * 192 registers are the block's 4 * 128: more would be waited for in vain.
    asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
    Gather(lists, caches, tid % kGathering)
        .tiles(shared, (tid - kComputing) / kGathering, begin, end);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 192;");
  const int group = tid / 128, lane = tid % 32, warp = tid % 128 / 32;
  Compute compute;
#pragma unroll
  for (float& v : compute.values) v = 0.0f;
  for (int tile = begin; tile < end; ++tile) {
    const int buffer = (tile - begin) & 1;
    barrier_wait(kFull + buffer, kPartners);
    compute.tile(shared, buffer, group, scale);
    // The gathering warps wait for every buffer that they fill again, and for no other.
    if (tile + 2 < end) barrier_arrive(kEmpty + buffer, kPartners);
  }
  bool any = compute.any;
  any |= __shfl_xor_sync(kAllLanes, any ? 1 : 0, 1) != 0;
  any |= __shfl_xor_sync(kAllLanes, any ? 1 : 0, 2) != 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) compute.sum[half] = warp_sum<4>(compute.sum[half]);

  if (parts.splits > 1) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int h = 16 * warp + lane / 4 + 8 * half;
      if (h >= heads) continue;
      const std::int64_t index = (t * parts.splits + split) * p.q.shape[1] + first_head + h;
      float* to = parts.values + index * kDim + kHalf * group + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < kHalf / 8; ++j) {
        *reinterpret_cast<float2*>(to + 8 * j) =
            make_float2(compute.values[4 * j + 2 * half], compute.values[4 * j + 2 * half + 1]);
      }
      if (group == 0 && lane % 4 == 0) {
        parts.best[index] = compute.best[half];
        parts.sum[index] = any ? compute.sum[half] : -1.0f;
      }
    }
    return;
  }
  // Through shared memory, so that rows leave in whole chunks; nobody reads queries any more.
  barrier_wait(kDone, kComputing);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int h = 16 * warp + lane / 4 + 8 * half;
    const float sink = h < heads ? *at<float>(p.sinks, first_head + h) : 0.0f;
    const float factor =
        any ? portable::normaliser(compute.sum[half], compute.best[half], sink) : 0.0f;
    if (h < heads && group == 0 && lane % 4 == 0) {
      *at<float>(p.lse, t, first_head + h) =
          any ? portable::log_sum(compute.sum[half], compute.best[half]) : -kMinusInf;
    }
#pragma unroll
    for (int j = 0; j < kHalf / 8; ++j) {
      unsigned char* to =
          shared.queries + chunk_offset<kRowChunks>(h, kHalf / 8 * group + j) + 4 * (lane % 4);
      *reinterpret_cast<std::uint32_t*>(to) = pair_of(
          compute.values[4 * j + 2 * half] * factor, compute.values[4 * j + 2 * half + 1] * factor);
    }
  }
  barrier_wait(kDone, kComputing);
  for (int id = tid; id < heads * kRowChunks; id += kComputing) {
    const int h = id / kRowChunks;
    reinterpret_cast<uint4*>(at<std::uint16_t>(p.o, t, first_head + h))[id % kRowChunks] =
        *reinterpret_cast<const uint4*>(shared.queries +
                                        chunk_offset<kRowChunks>(h, id % kRowChunks));
  }
#endif
}

}  // namespace

bool takes(const as_sparse_attention_params& p, const Gpu& gpu) {
  return gpu.hopper && p.q.shape[1] > 32 && gpu.shared_memory >= kBytes;
}

int sparse_attention(const as_sparse_attention_params& p, const Launch& launch) {
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  Caches caches{};
  caches.view[0] = cache_view(p.cache);
  if (p.extra_cache.record != AS_RECORD_NONE) caches.view[1] = cache_view(p.extra_cache);
  const Parts parts = portable::parts_of(p, portable::splits_for(p, launch.gpu), launch.workspace);
  const cudaError_t code = cudaFuncSetAttribute(
      hopper_attention_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (code != cudaSuccess) return code;
  const dim3 grid(static_cast<unsigned>(p.q.shape[0]),
                  static_cast<unsigned>((p.q.shape[1] + kHeads - 1) / kHeads),
                  static_cast<unsigned>(parts.splits));
  const float scale = static_cast<float>(p.scale * 1.4426950408889634);
  hopper_attention_kernel<<<grid, kThreads, kBytes, stream>>>(p, caches, parts, scale);
  if (const int status = launch_status(); status != 0 || parts.splits == 1) return status;
  return portable::combine(p, parts, stream);
}

}  // namespace attnscope::cuda::hopper
