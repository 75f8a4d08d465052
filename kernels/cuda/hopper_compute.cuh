// What the two computing warpgroups of Hopper's attention do.
//
// The softmax runs online in base 2, and what is summed is rescaled only where a maximum has grown
// by more than kSlack. The second warpgroup is half a tile behind: it adds a tile while the first
// weighs the next one, so that the tensor cores have work meanwhile.
#pragma once

#include "kernels/cuda/hopper_gather.cuh"
#include "kernels/cuda/hopper_tile.cuh"

namespace attnscope::cuda::hopper {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr float kSlack = 8.0f;  // weights grow to 2^8 at most

__device__ __forceinline__ std::uint32_t pair_of(float low, float high) {
  return as_bits(__floats2bfloat162_rn(low, high));
}
__device__ __forceinline__ std::uint32_t half_pair_of(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ float power_of_two(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
// Four 8x8 matrices from the registers that a matrix step leaves or takes; lane l gives the address
// of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrix4(std::uint32_t address, const std::uint32_t* r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
// The same, but what is computed from it stays where it is: addresses of steps made ahead of a loop
// would fill the registers.
__device__ __forceinline__ std::uint32_t made_here(std::uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}
// `sum`, which begins as zeros, or NaN where one of two fp16 is not finite.
__device__ __forceinline__ std::uint32_t infinite_f16x2(std::uint32_t pair, std::uint32_t sum) {
  std::uint32_t next;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(next) : "r"(pair), "r"(0u), "r"(sum));
  return next;
}
// NaN if one of them is not finite, else 0.
__device__ __forceinline__ float probe(const float (&values)[kHalf / 2]) {
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < kHalf / 2; ++i) sum[i % 4] = fmaf(values[i], 0.0f, sum[i % 4]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// What a block does; made again for every pass, so that little is kept in registers.
template <class Rows>
struct Block {
  const as_sparse_attention_params& p;
  const Parts& parts;
  Shared<Rows>& shared;
  std::int64_t token;
  int first_head, heads;
  int split, begin, end;  // tiles; with a plan `split` is of all tokens
  float scale;            // of a score, in base 2

  __device__ __forceinline__ Block(const as_sparse_attention_params& params, const Parts& its_parts,
                                   Shared<Rows>& its_shared, float its_scale)
      : p(params), parts(its_parts), shared(its_shared), scale(its_scale) {
    const std::uint32_t id = made_here(blockIdx.x);
    const std::uint32_t of_token = (static_cast<std::uint32_t>(p.q.shape[1]) + kHeads - 1) / kHeads;
    const std::uint32_t unit = of_token == 1 ? id : id / of_token;
    first_head = static_cast<int>(id - unit * of_token) * kHeads;
    heads = min(kHeads, static_cast<int>(p.q.shape[1]) - first_head);
    token = unit;
    split = static_cast<int>(blockIdx.z);
    if (portable::has_plan(p)) {
      split = static_cast<int>(unit);
      token = portable::of_split(p, split, AS_PLAN_ROW);
    }
    begin = end = 0;
  }
  __device__ __forceinline__ Lists find_tiles() {
    const Lists lists = portable::lists_of(p, token);
    const int tiles = lists.tiles[0] + lists.tiles[1];
    if (portable::has_plan(p)) {
      begin = __shfl_sync(kAllLanes, min(portable::of_split(p, split, AS_PLAN_BEGIN), tiles), 0);
      end = __shfl_sync(kAllLanes, min(portable::of_split(p, split, AS_PLAN_END), tiles), 0);
      return lists;
    }
    begin = __shfl_sync(kAllLanes, tiles * split / parts.splits, 0);
    end = __shfl_sync(kAllLanes, tiles * (split + 1) / parts.splits, 0);
    return lists;
  }
  // Where its part goes; negative: it is the whole token.
  __device__ __forceinline__ std::int64_t place() const {
    if (portable::has_plan(p)) return portable::of_split(p, split, AS_PLAN_PLACE);
    return parts.values != nullptr ? token * parts.splits + split : -1;
  }
};

// Queries into shared memory, by both computing warpgroups. Whether one does not fit the form.
template <bool exact, class Rows>
__device__ __forceinline__ bool load_queries(const Block<Rows>& block) {
  constexpr int kRowChunks = Rows::kWidth / 8;
  const int tid = static_cast<int>(threadIdx.x);
  constexpr int kBatch = kHeads * kRowChunks % (2 * kGroup * 8) == 0 ? 8 : 6;
  static_assert(kHeads * kRowChunks % (2 * kGroup * kBatch) == 0);
  std::uint32_t lost = 0;
#pragma unroll 1
  for (int part = 0; part < kHeads * kRowChunks / (2 * kGroup * kBatch); ++part) {
    uint4 bits[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int id = (part * kBatch + i) * 2 * kGroup + tid;
      const int h = id / kRowChunks;
      bits[i] = make_uint4(0u, 0u, 0u, 0u);
      if (h < block.heads) {
        bits[i] = __ldg(reinterpret_cast<const uint4*>(
                            at<std::uint16_t>(block.p.q, block.token, block.first_head + h)) +
                        id % kRowChunks);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int id = (part * kBatch + i) * 2 * kGroup + tid;
      uint4 to = bits[i];
      if (!exact) {
        to = make_uint4(narrow_bf16x2<0>(to.x), narrow_bf16x2<0>(to.y), narrow_bf16x2<0>(to.z),
                        narrow_bf16x2<0>(to.w));
        lost = infinite_f16x2(to.x, infinite_f16x2(to.y, lost));
        lost = infinite_f16x2(to.z, infinite_f16x2(to.w, lost));
      }
      *reinterpret_cast<uint4*>(block.shared.queries +
                                panel_offset<kHeads>(id / kRowChunks, id % kRowChunks)) = to;
    }
  }
  publish_shared();
  return (lost & 0x7fff7fffu) != 0;
}

// A warpgroup's 64 heads by 256 dims: thread has rows lane / 4 and lane / 4 + 8 of its warp's
// sixteen heads. To the result, or to the parts of a split token.
template <class Rows>
__device__ __forceinline__ void write_values(const Block<Rows>& block, int group,
                                             const float (&values)[kHalf / 2],
                                             const float (&factor)[2]) {
  const int tid = static_cast<int>(threadIdx.x) % kGroup, lane = tid % 32, warp = tid / 32;
  if (const std::int64_t place = block.place(); place >= 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int h = 16 * warp + lane / 4 + 8 * half;
      if (h >= block.heads) continue;
      const std::int64_t index = place * block.p.q.shape[1] + block.first_head + h;
      float* to = block.parts.values + index * kDim + kHalf * group + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < kHalf / 8; ++j) {
        *reinterpret_cast<float2*>(to + 8 * j) = make_float2(
            values[4 * j + 2 * half] * factor[half], values[4 * j + 2 * half + 1] * factor[half]);
      }
    }
    return;
  }
  // Through shared memory, so that rows leave in whole chunks; nobody reads queries any more.
  constexpr int kChunks = kHalf / 8;
  unsigned char* staged = block.shared.queries + group * kHeads * kHalf * 2;
  const int row = 16 * warp + lane % 16;
#pragma unroll
  for (int j = 0; j < kChunks; j += 2) {
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* from = values + 4 * (j + i / 2) + 2 * (i % 2);
      pairs[i] = pair_of(from[0] * factor[i % 2], from[1] * factor[i % 2]);
    }
    store_matrix4(shared_address(staged) + chunk_offset<kChunks>(row, j + lane / 16), pairs);
  }
  __syncwarp();
#pragma unroll 4
  for (int i = 0; i < 16 * kChunks / 32; ++i) {
    const int h = 16 * warp + i;
    static_assert(kChunks == 32);
    if (h < block.heads) {
      reinterpret_cast<uint4*>(at<std::uint16_t>(block.p.o, block.token, block.first_head + h) +
                               group * kHalf)[lane] =
          *reinterpret_cast<const uint4*>(staged + chunk_offset<kChunks>(h, lane));
    }
  }
}

// The first warpgroup.
template <bool exact, class Rows>
class Scorer {
 public:
  __device__ __forceinline__ explicit Scorer(const Block<Rows>& block) : block_(block) {}

  // Whether the result is not finite.
  __device__ __forceinline__ bool run() {
    add_tiles();
    return finish();
  }

  // All tiles: values() are their weighted sums.
  __device__ __forceinline__ void add_tiles() {
    const int begin = block_.begin, end = block_.end;
#pragma unroll
    for (float& v : values_) v = 0.0f;
    if (begin < end) {
      score(0);
      wait_steps();
      int tile = begin;
      for (; tile + 1 < end; ++tile) {
        const int buffer = (tile - begin) & 1;
        weigh(buffer, tile - begin);
        add(buffer);
        score(buffer ^ 1);
        wait_steps<1>();  // the values
        if (tile + 2 < end) barrier_arrive(kEmpty + buffer, kPartners);
        wait_steps();
        barrier_arrive(kScored, 2 * kGroup);
      }
      weigh((tile - begin) & 1, tile - begin);
      add((tile - begin) & 1);
      wait_steps();
    }
#pragma unroll
    for (float& sum : sum_) sum = warp_sum<4>(sum);
  }

  __device__ __forceinline__ const float (&values() const)[kHalf / 2] { return values_; }
  // Of this lane's head: largest score, sum of weights.
  __device__ __forceinline__ float best(int half) const { return best_[half]; }
  __device__ __forceinline__ float sum(int half) const { return any_ ? sum_[half] : -1.0f; }
  __device__ __forceinline__ bool infinite() const {
    const float bad = exact ? 0.0f : probe(values_) + (sum_[0] + sum_[1]) * 0.0f;
    return bad != bad;
  }

 private:
  __device__ __forceinline__ void score(int buffer) {
    const std::uint64_t queries = descriptor(made_here(shared_address(block_.shared.queries)), 16);
    const std::uint64_t rows =
        descriptor(made_here(shared_address(block_.shared.rows[buffer])), 16);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      barrier_wait(kFull + 2 * half + buffer, kPartners);
      begin_steps();
#pragma unroll
      for (int i = 0; i < (half == 0 ? kHalf : Rows::kWidth - kHalf) / 16; ++i) {
        const int k = half * (kHalf / 16) + i;
        const std::uint64_t offset = (static_cast<std::uint32_t>(k / 4) * kPanel + k % 4 * 32) / 16;
        step_64x64<exact>(scores_, queries + offset, rows + offset, k > 0);
      }
    }
    end_steps();
  }

  // n: tiles before this one.
  __device__ __forceinline__ void weigh(int buffer, int n) {
    auto& shared = block_.shared;
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    std::uint32_t valid[8];
    {
      const uint4 a = *reinterpret_cast<const uint4*>(shared.valid[buffer]);
      const uint4 b = *reinterpret_cast<const uint4*>(shared.valid[buffer] + 4);
      valid[0] = a.x, valid[1] = a.y, valid[2] = a.z, valid[3] = a.w;
      valid[4] = b.x, valid[5] = b.y, valid[6] = b.z, valid[7] = b.w;
    }
    std::uint32_t all = ~0u, some = 0u;
#pragma unroll
    for (const std::uint32_t v : valid) {
      all &= v;
      some |= v;
    }
    any_ = any_ || some != 0u;
    if (exact) {
#pragma unroll
      for (float& s : scores_) s *= block_.scale;
    }
    if (all != ~0u) {
#pragma unroll
      for (int j = 0; j < kTile / 8; ++j) {
        const std::uint32_t mine = valid[j] >> (8 * (lane % 4));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if ((mine >> (4 * (i % 2)) & 1u) == 0) scores_[4 * j + i] = kMinusInf;
        }
      }
    }
    float most[2] = {kMinusInf, kMinusInf};
#pragma unroll
    for (int i = 0; i < kTile / 2; ++i) {
      most[i / 2 % 2] = fmaxf(most[i / 2 % 2], scores_[i]);
    }
    bool grew = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = warp_max<4>(most[half]);
      if (!exact) most[half] *= block_.scale;
      grew = grew || most[half] > best_[half] + kSlack;
    }
    grew = __any_sync(kAllLanes, grew) != 0;
    if (lane == 0) shared.grew[buffer][warp] = grew ? 1u : 0u;
    if (grew) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float top = fmaxf(best_[half], most[half]);
        const float old = power_of_two(best_[half] - (top == kMinusInf ? 0.0f : top));
        best_[half] = top;
        sum_[half] *= old;
#pragma unroll
        for (int j = 0; j < kHalf / 8; ++j) {
          values_[4 * j + 2 * half] *= old;
          values_[4 * j + 2 * half + 1] *= old;
        }
        if (lane % 4 == 0) shared.factors[buffer][16 * warp + lane / 4 + 8 * half] = old;
      }
    }
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      shift[half] = best_[half] == kMinusInf ? 0.0f : best_[half];
    }
    if (Rows::kWeights == 1 && n > 0) shared.weights_taken.wait((n - 1) & 1);
    // As left operands of 16 entries each, for this warpgroup in registers.
    const std::uint32_t at = shared_address(shared.weights[buffer % Rows::kWeights][0]) +
                             panel_offset<kHeads>(16 * warp + lane % 16, 0);
#pragma unroll
    for (int k = 0; k < kTile / 16; ++k) {
      std::uint32_t rest[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i % 2;
        const float* from = scores_ + 8 * k + 4 * (i / 2) + 2 * half;
        const float low = weight(from[0], shift[half]), high = weight(from[1], shift[half]);
        sum_[half] += low;
        sum_[half] += high;
        const std::uint32_t packed = exact ? pair_of(low, high) : half_pair_of(low, high);
        weights_[k][i] = packed;
        if (exact) {
          rest[i] = pair_of(low - __uint_as_float(packed << 16),
                            high - __uint_as_float(packed & 0xffff0000u));
        }
      }
      // Chunk 2k and the next of a row, at their places.
      const std::uint32_t to = at ^ ((2 * k + lane / 16) * 16);
      store_matrix4(to, weights_[k]);
      if (exact) store_matrix4(to + sizeof(shared.weights[0][0]), rest);
    }
    publish_shared();
    shared.weights_there[buffer].come();
    if (exact) barrier_wait(kRest, kGroup);
  }

  __device__ __forceinline__ float weight(float score, float shift) const {
    return exact ? exp2f(score - shift) : power_of_two(fmaf(score, block_.scale, -shift));
  }

  __device__ __forceinline__ void add(int buffer) {
    const std::uint64_t rows =
        descriptor(made_here(shared_address(block_.shared.rows[buffer])), kPanel);
    begin_steps();
#pragma unroll
    for (int k = 0; k < kTile / 16; ++k) {
      const std::uint64_t from = rows + k * 2048 / 16;
      step_64x128<exact>(values_, weights_[k], from);
      step_64x128<exact>(values_ + 64, weights_[k], from + 2 * kPanel / 16);
      if (exact) {
        const std::uint64_t rest =
            descriptor(made_here(shared_address(block_.shared.weights[buffer][exact ? 1 : 0])),
                       16) +
            k * 32 / 16;
        step_64x128<exact>(values_, rest, from);
        step_64x128<exact>(values_ + 64, rest, from + 2 * kPanel / 16);
      }
    }
    end_steps();
  }

  __device__ __forceinline__ bool finish() {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const auto& p = block_.p;
    const std::int64_t place = block_.place();
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int h = 16 * warp + lane / 4 + 8 * half;
      factor[half] = exact ? 1.0f : 1.0f / (1 << kRowBits);
      if (place >= 0) {
        if (h < block_.heads && lane % 4 == 0) {
          const std::int64_t index = place * p.q.shape[1] + block_.first_head + h;
          block_.parts.best[index] = best_[half];
          block_.parts.sum[index] = sum(half);
        }
      } else {
        const float sink = h < block_.heads ? block_.shared.sinks[h] : kMinusInf;
        factor[half] =
            any_ ? factor[half] * portable::normaliser(sum_[half], best_[half], sink) : 0.0f;
      }
      if (lane % 4 == 0) block_.shared.last[h] = factor[half];
    }
    block_.shared.last_there.come();
    if (place < 0 && lane % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int h = 16 * warp + lane / 4 + 8 * half;
        if (h >= block_.heads) continue;
        *at<float>(p.lse, block_.token, block_.first_head + h) =
            any_ ? portable::log_sum(sum_[half], best_[half]) : portable::nothing(p);
      }
    }
    write_values(block_, 0, values_, factor);
    return infinite();
  }

  const Block<Rows>& block_;
  float values_[kHalf / 2];
  float scores_[kTile / 2];
  std::uint32_t weights_[kTile / 16][4];
  float best_[2] = {kMinusInf, kMinusInf};
  float sum_[2] = {0.0f, 0.0f};  // this lane's share
  bool any_ = false;
};

// The second warpgroup: all tiles. Whether the sums are not finite.
template <bool exact, class Rows>
__device__ __forceinline__ bool add_upper_tiles(const Block<Rows>& block,
                                                float (&values)[kHalf / 2]) {
  const int tid = static_cast<int>(threadIdx.x) % kGroup, lane = tid % 32, warp = tid / 32;
  const int row = 16 * warp + lane / 4;
  auto& shared = block.shared;
#pragma unroll
  for (float& v : values) v = 0.0f;
  for (int tile = block.begin; tile < block.end; ++tile) {
    const int buffer = (tile - block.begin) & 1;
    shared.weights_there[buffer].wait((tile - block.begin) / 2 & 1);
    if (shared.grew[buffer][warp] != 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float old = shared.factors[buffer][row + 8 * half];
#pragma unroll
        for (int j = 0; j < kHalf / 8; ++j) {
          values[4 * j + 2 * half] *= old;
          values[4 * j + 2 * half + 1] *= old;
        }
      }
    }
    if (tile + 1 < block.end) barrier_wait(kScored, 2 * kGroup);
    const std::uint64_t rows =
        descriptor(shared_address(shared.rows[buffer]) + kHalf / 64 * kPanel, kPanel);
    begin_steps();
#pragma unroll
    for (int part = 0; part < (exact ? 2 : 1); ++part) {
      const std::uint64_t weights =
          descriptor(shared_address(shared.weights[buffer % Rows::kWeights][part]), 16);
#pragma unroll
      for (int k = 0; k < kTile / 16; ++k) {
        step_64x128<exact>(values, weights + k * 32 / 16, rows + k * 2048 / 16);
        step_64x128<exact>(values + 64, weights + k * 32 / 16, rows + (k * 2048 + 2 * kPanel) / 16);
      }
    }
    end_steps();
    wait_steps();
    if (Rows::kWeights == 1) shared.weights_taken.come();
    if (tile + 2 < block.end) barrier_arrive(kEmpty + 2 + buffer, kPartners);
  }
  const float bad = exact ? 0.0f : probe(values);
  return bad != bad;
}

template <bool exact, class Rows>
__device__ __forceinline__ bool add_upper(const Block<Rows>& block) {
  const int tid = static_cast<int>(threadIdx.x) % kGroup;
  const int row = 16 * (tid / 32) + tid % 32 / 4;
  float values[kHalf / 2];
  const bool infinite = add_upper_tiles<exact>(block, values);
  block.shared.last_there.wait(0);
  const float factor[2] = {block.shared.last[row], block.shared.last[row + 8]};
  write_values(block, 1, values, factor);
  return infinite;
}

#endif

}  // namespace attnscope::cuda::hopper
