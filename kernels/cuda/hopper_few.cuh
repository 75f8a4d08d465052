// What the warps of a block of hopper_few.cu share, and what each of them does for its rows and
// dims.
#pragma once

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/hopper_compute.cuh"
#include "kernels/cuda/hopper_few_rows.cuh"

namespace attnscope::cuda::hopper::few {

constexpr int kHeads = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kDims = kDim / kWarps;           // that a warp sums
constexpr int kHeadsOfWarp = kHeads / kWarps;  // that it sends, and whose parts it weighs
constexpr std::uint32_t kRowBytes = kDim * 2;
static_assert(kEntries == kTile && kDims == 64);

// What a block sends of a head: 512 sums in fp16, then these.
struct Tail {
  float sums[kWarps];    // of weights, by who scored; NaN: fp16 does not hold some value
  float scales[kWarps];  // of the values, by 64 dims
  float best;            // largest score, base 2
  float any;             // 1: some entry was valid
  float unused[2];
};
constexpr int kPartBytes = kDim * 2 + static_cast<int>(sizeof(Tail));
static_assert(kPartBytes % 16 == 0);

struct alignas(1024) Shared {
  unsigned char queries[kHeads * kRowBytes];
  unsigned char rows[2][kEntries * kRowBytes];      // one of them holds what is sent in the end
  unsigned char weights[2][kHeads * kEntries * 2];  // by tile
  unsigned char came[(kHeads + kMostBlocks) * kPartBytes];  // by head that this block owns, block
  float most[kHeads][kWarps];                               // largest scores, by who scored
  float factors[kHeads][kMostBlocks];                       // of the parts that came
  float sinks[kHeads];                                      // of the heads that this block owns
  Pages pages[2];
  std::uint32_t useless;  // 1: some part is of no use
  Barrier parts_there;
};
constexpr std::size_t kBytes = sizeof(Shared);
static_assert(kBytes <= 232448);  // what a block may have

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void store_chunk(std::uint32_t to, const std::uint32_t* words) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}

__device__ __forceinline__ float shift_of(float best) { return best == kMinusInf ? 0.0f : best; }

// What a block does, and which of its cluster's heads it owns: runs of `share`, in order of rank.
struct Task {
  const std::int64_t token = blockIdx.y;
  const int blocks = static_cast<int>(gridDim.z), rank = static_cast<int>(blockIdx.z);
  const int first_head = static_cast<int>(blockIdx.x) * kHeads;
  int heads, share, mine, first_mine;

  __device__ __forceinline__ explicit Task(const as_sparse_attention_params& p) {
    heads = min(kHeads, static_cast<int>(p.q.shape[1]) - first_head);
    share = (heads + blocks - 1) / blocks;
    mine = max(min(share, heads - rank * share), 0);
    first_mine = first_head + rank * share;
  }
};

// Queries on their way to shared memory; a thread has four chunks.
class Queries {
 public:
  __device__ __forceinline__ Queries(const as_sparse_attention_params& p, const Task& task) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      from_[i] = nullptr;
      if (head(i) < task.heads) {
        from_[i] = reinterpret_cast<const uint4*>(
                       at<std::uint16_t>(p.q, task.token, task.first_head + head(i))) +
                   chunk();
      }
      asm volatile("" : "+l"(from_[i]));  // computed here
    }
  }
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      chunk_[i] = from_[i] != nullptr ? __ldg(from_[i]) : make_uint4(0u, 0u, 0u, 0u);
    }
  }
  // Whether one does not fit into fp16.
  __device__ __forceinline__ bool store(Shared& shared) const {
    std::uint32_t lost = 0;
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const std::uint32_t to[4] = {narrow_bf16x2<0>(chunk_[i].x), narrow_bf16x2<0>(chunk_[i].y),
                                   narrow_bf16x2<0>(chunk_[i].z), narrow_bf16x2<0>(chunk_[i].w)};
#pragma unroll
      for (const std::uint32_t pair : to) lost = infinite_f16x2(pair, lost);
      store_chunk(shared_address(shared.queries) + chunk_offset<kRowChunks>(head(i), chunk()), to);
    }
    return (lost & 0x7fff7fffu) != 0;
  }

 private:
  static constexpr int kMine = kHeads * kRowChunks / kThreads;
  __device__ __forceinline__ static int head(int i) {
    return i * (kThreads / kRowChunks) + static_cast<int>(threadIdx.x) / kRowChunks;
  }
  __device__ __forceinline__ static int chunk() {
    return static_cast<int>(threadIdx.x) % kRowChunks;
  }

  const uint4* from_[kMine];
  uint4 chunk_[kMine];
};

// A warp's rows and dims, over all tiles.
class Worker {
 public:
  __device__ __forceinline__ Worker(Shared& shared, float scale)
      : shared_(shared),
        scale_(scale),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x / 32)) {
    const std::uint32_t rows = shared_address(shared.rows);
    const std::uint32_t swizzle = static_cast<std::uint32_t>((lane_ / 16) ^ (lane_ & 7)) * 16;
    store_at_ = rows + threadIdx.x / 4 * kRowBytes;
    values_at_ = rows + lane_ % 16 * kRowBytes + warp_ * 128 + swizzle;
    weights_at_ = shared_address(shared.weights) + lane_ % 16 * (kEntries * 2) + swizzle;
  }

  // Of heads lane / 4 and lane / 4 + 8 what Row::decode() has of a row.
  __device__ __forceinline__ void keep_queries() {
    const unsigned char* from = shared_.queries + lane_ / 4 * kRowBytes;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int chunk = Row::chunk_of(i, k) ^ (lane_ / 4);
          queries_[i][half][k] =
              *reinterpret_cast<const uint4*>(from + chunk * 16 + i * 128 + half * 8 * kRowBytes);
        }
      }
    }
  }

  // Decodes and scores the rows of a tile and asks for those of the next; `adds`: beside that the
  // values of the one before.
  template <bool adds>
  __device__ __forceinline__ void score(int tile, Row& row, const Place& next) {
    misfit_ = misfit_ || !row.fits();
    const std::uint32_t to = store_at_ + (tile & 1) * kBufferBytes;
    const std::uint32_t from = values_at_ + (~tile & 1) * kBufferBytes;
    const std::uint32_t weights = weights_at_ + (~tile & 1) * kWeightBytes;
    const int swizzle = static_cast<int>(threadIdx.x / 4 & 7);
    float part[2][4] = {};
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      std::uint32_t out[8];
      row.decode(i, out);
      row.load_chunk(next, i);
      if (i == kCodes - 1) row.load_scales(next);
      if (i == kCodes) row.load_chunk(next, i + 1);
      if (i >= kCodes) {
#pragma unroll
        for (const std::uint32_t pair : out) lost_ = infinite_f16x2(pair, lost_);
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        store_chunk(to + i * 128 + (Row::chunk_of(i, k) ^ swizzle) * 16, out + 4 * k);
        const uint4 &low = queries_[i][0][k], &high = queries_[i][1][k];
        const std::uint32_t a[4] = {low.x, high.x, low.y, high.y};
        const std::uint32_t b[4] = {low.z, high.z, low.w, high.w};
        mma_f16(part[0], a, out[4 * k], out[4 * k + 1]);
        mma_f16(part[1], b, out[4 * k + 2], out[4 * k + 3]);
      }
      if (adds) add(from, weights, i / 2, i % 2);
    }
    const std::uint32_t valid = __ballot_sync(kAllLanes, row.valid);
    row.valid = next.valid;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores_[i] = is_valid(valid, i % 2) ? (part[0][i] + part[1][i]) * scale_ : kMinusInf;
    }
  }

  // Weights of the tile into shared memory, relative to the largest score there was when last some
  // score of the block had grown by more than kSlack.
  __device__ __forceinline__ void weigh(int tile) {
    const std::uint32_t weights = shared_address(shared_.weights[tile & 1]);
    float sum[2];
    store_weights(weights, sum);
    const bool grew = fmaxf(scores_[0], scores_[1]) > best_[0] + kSlack ||
                      fmaxf(scores_[2], scores_[3]) > best_[1] + kSlack;
    if (__syncthreads_or(grew ? 1 : 0) != 0) {
      find_best();
      store_weights(weights, sum);
      __syncthreads();
    }
    sum_[0] += sum[0];
    sum_[1] += sum[1];
  }

  // The values of the last tile, which has so many units.
  __device__ __forceinline__ void add_last(int tile, int units) {
    const std::uint32_t from = values_at_ + (tile & 1) * kBufferBytes;
    const std::uint32_t weights = weights_at_ + (tile & 1) * kWeightBytes;
#pragma unroll 1
    for (int k = 0; 2 * k < units; k += 2) {
      add(from, weights, k, 0);
      add(from, weights, k, 1);
      add(from, weights, k + 1, 0);
      add(from, weights, k + 1, 1);
    }
  }

  // What the block has of its heads, at `parts`.
  __device__ __forceinline__ void leave(unsigned char* parts, bool misfit) const {
    misfit = __any_sync(kAllLanes, misfit || misfit_ || (lost_ & 0x7fff7fffu) != 0) != 0;
    float up[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = 0.0f;
#pragma unroll
      for (const auto& v : values_) {
        largest = fmaxf(largest, fmaxf(fabsf(v[2 * half]), fabsf(v[2 * half + 1])));
      }
      largest = warp_max<4>(largest);
      // To 2^14 and more, where fp16 has all its bits.
      const std::uint32_t exponent = min(max(__float_as_uint(largest) >> 23, 27u), 254u);
      up[half] = __uint_as_float((268u - exponent) << 23);
      const float sum = warp_sum<4>(sum_[half]);
      if (lane_ % 4 != 0) continue;
      auto& tail = *reinterpret_cast<Tail*>(parts + head(half) * kPartBytes + kDim * 2);
      tail.sums[warp_] = misfit ? __int_as_float(0x7fffffff) : sum;
      tail.scales[warp_] = __uint_as_float((exponent - 14u) << 23);
      if (warp_ == 0) {
        tail.best = best_[half];
        tail.any = best_[half] != kMinusInf ? 1.0f : 0.0f;
      }
    }
    const std::uint32_t to =
        shared_address(parts) + lane_ % 16 * kPartBytes + warp_ * 128 + lane_ / 16 * 16;
#pragma unroll
    for (int j = 0; j < kDims / 8; j += 2) {
      std::uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* v = values_[j + i / 2] + 2 * (i % 2);
        pairs[i] = half_pair_of(v[0] * up[i % 2], v[1] * up[i % 2]);
      }
      store_matrix4(to + j * 16, pairs);
    }
  }

 private:
  static constexpr int kBlocks = kDim / 64;  // of 64 dims: seven of codes, one of bf16
  static constexpr std::uint32_t kBufferBytes = kEntries * kRowBytes;
  static constexpr std::uint32_t kWeightBytes = kHeads * kEntries * 2;

  __device__ __forceinline__ int head(int half) const { return lane_ / 4 + 8 * half; }
  // Of the entries 2 lane % 4 and the next of this warp's eight.
  __device__ __forceinline__ bool is_valid(std::uint32_t valid, int i) const {
    return (valid >> (4 * (2 * (lane_ % 4) + i)) & 1u) != 0;
  }

  // The largest score of all so far, by the whole block; what is summed becomes relative to it.
  __device__ __forceinline__ void find_best() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float most = warp_max<4>(fmaxf(scores_[2 * half], scores_[2 * half + 1]));
      if (lane_ % 4 == 0) shared_.most[head(half)][warp_] = most;
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = best_[half];
      const auto* of = reinterpret_cast<const float4*>(shared_.most[head(half)]);
#pragma unroll
      for (int w = 0; w < kWarps / 4; ++w) {
        top = fmaxf(top, fmaxf(fmaxf(of[w].x, of[w].y), fmaxf(of[w].z, of[w].w)));
      }
      const float old = power_of_two(best_[half] - shift_of(top));
      best_[half] = top;
      sum_[half] *= old;
#pragma unroll
      for (auto& v : values_) {
        v[2 * half] *= old;
        v[2 * half + 1] *= old;
      }
    }
  }
  // This lane's weights of the tile, and their sums.
  __device__ __forceinline__ void store_weights(std::uint32_t to, float (&sum)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float shift = shift_of(best_[half]);
      const float low = power_of_two(scores_[2 * half] - shift);
      const float high = power_of_two(scores_[2 * half + 1] - shift);
      sum[half] = low + high;
      const std::uint32_t offset = chunk_offset<kEntries / 8>(head(half), warp_) + 4 * (lane_ % 4);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + offset), "r"(half_pair_of(low, high))
                   : "memory");
    }
  }

  // Sixteen entries, from 16 k on, by 32 dims of this warp's.
  __device__ __forceinline__ void add(std::uint32_t from, std::uint32_t weights, int k, int half) {
    if (half == 0) weights_ = load_matrix4(weights ^ (k * 32));
#pragma unroll
    for (int j = 4 * half; j < 4 * half + 4; j += 2) {
      const Matrix4 b = load_matrix4_transposed((from ^ (j * 16)) + k * 16 * kRowBytes);
      mma_f16(values_[j], weights_.r, b.r[0], b.r[1]);
      mma_f16(values_[j + 1], weights_.r, b.r[2], b.r[3]);
    }
  }

  Shared& shared_;
  const float scale_;  // of a score, in base 2
  const int lane_, warp_;
  std::uint32_t store_at_, values_at_, weights_at_;
  uint4 queries_[kBlocks][2][2] = {};
  Matrix4 weights_;
  float values_[kDims / 8][4] = {};
  float scores_[4];
  float best_[2] = {kMinusInf, kMinusInf};
  float sum_[2] = {0.0f, 0.0f};  // this lane's share
  std::uint32_t lost_ = 0;
  bool misfit_ = false;
};

#endif

}  // namespace attnscope::cuda::hopper::few
