// Heads once more in fp32, for values that the fp16 of hopper_tile.cuh does not hold: a warp a
// head, slow.
#pragma once

#include "kernels/cuda/hopper_gather.cuh"
#include "kernels/cuda/hopper_tile.cuh"

namespace attnscope::cuda::hopper {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Sixteen codes of one scale.
__device__ __forceinline__ void widen_codes(const uint4& codes, float scale, float* values) {
  const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t pair = widen_e4m3x2(words[i / 2] >> (16 * (i % 2)));
    const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    values[2 * i] = both.x * scale;
    values[2 * i + 1] = both.y * scale;
  }
}

// Sixteen values of a row, from 16 lane on.
__device__ __forceinline__ void load_values(const RowAddress& row, int lane, float (&values)[16]) {
  if (lane < 28) {
    const uint4 codes = __ldg(reinterpret_cast<const uint4*>(row.payload) + lane);
    return widen_codes(codes, ue8m0_to_float(row.scales[lane / 4]), values);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4 chunk = __ldg(reinterpret_cast<const uint4*>(row.payload) + 2 * lane - 28 + i);
    const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      values[8 * i + 2 * k] = __uint_as_float(words[k] << 16);
      values[8 * i + 2 * k + 1] = __uint_as_float(words[k] & 0xffff0000u);
    }
  }
}

// Of absorbed MLA; then the two dims behind the latent ones, from 2 lane on, which are no values.
__device__ __forceinline__ void load_values(const RowAddress& row, int lane, float (&values)[18]) {
  const uint4 codes = __ldg(reinterpret_cast<const uint4*>(row.payload) + lane);
  widen_codes(codes, __ldg(reinterpret_cast<const float*>(row.scales) + lane / 8), values);
  const std::uint32_t pair =
      __ldg(reinterpret_cast<const std::uint32_t*>(row.payload + AS_LATENT_656_ROPE) + lane);
  values[16] = __uint_as_float(pair << 16);
  values[17] = __uint_as_float(pair & 0xffff0000u);
}

// What is computed again: `heads` of a token over tiles `begin` to end - 1 of its lists. Its parts
// go to `place`; negative: it is the whole token.
struct Again {
  std::int64_t token;
  int first_head, heads;
  int begin, end;
  std::int64_t place;
};

// By all threads of the block. `scale`: of a score, in base 2.
template <class Rows>
__device__ __forceinline__ void again_in_float(const as_sparse_attention_params& p,
                                               const Sources& sources, const Parts& parts,
                                               const Lists& lists, const Again& what, float scale) {
  constexpr int kMine = Rows::kWidth / 32;  // dims of a lane; the first 16 of them are values
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warps = static_cast<int>(blockDim.x / 32);
#pragma unroll 1
  for (int h = static_cast<int>(threadIdx.x / 32); h < what.heads; h += warps) {
    const std::int64_t head = what.first_head + h;
    float query[kMine], sums[16];
    const auto* from = at<std::uint16_t>(p.q, what.token, head);
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      query[i] = bf16_to_float(from[i < 16 ? 16 * lane + i : kDim + 2 * lane + i - 16]);
      if (i < 16) sums[i] = 0.0f;
    }
    float best = kMinusInf, sum = 0.0f;
    bool any = false;
#pragma unroll 1
    for (int entry = what.begin * kTile; entry < what.end * kTile; ++entry) {
      const int slot = portable::slot_of(lists, entry / kTile, entry % kTile);
      if (slot < 0) continue;
      any = true;
      float values[kMine];
      load_values(row_at<Rows>(sources.pages[entry / kTile >= lists.tiles[0] ? 1 : 0],
                               static_cast<std::uint32_t>(slot)),
                  lane, values);
      float score = 0.0f;
#pragma unroll
      for (int i = 0; i < kMine; ++i) score = fmaf(query[i], values[i], score);
      score = warp_sum(score) * scale;
      const float top = fmaxf(best, score);
      const float shift = top == kMinusInf ? 0.0f : top;
      const float old = exp2f(best - shift), weight = exp2f(score - shift);
      best = top;
      sum = sum * old + weight;
#pragma unroll
      for (int i = 0; i < 16; ++i) sums[i] = fmaf(weight, values[i], sums[i] * old);
    }
    if (what.place >= 0) {
      const std::int64_t index = what.place * p.q.shape[1] + head;
#pragma unroll
      for (int i = 0; i < 16; ++i) parts.values[index * kDim + 16 * lane + i] = sums[i];
      parts.best[index] = best;
      parts.sum[index] = any ? sum : -1.0f;
      continue;
    }
    const float factor = any ? portable::normaliser(sum, best, portable::sink_of(p, head)) : 0.0f;
    auto* to =
        reinterpret_cast<std::uint32_t*>(at<std::uint16_t>(p.o, what.token, head)) + 8 * lane;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      to[i] = portable::pair_of(sums[2 * i] * factor, sums[2 * i + 1] * factor);
    }
    *at<float>(p.lse, what.token, head) = any ? portable::log_sum(sum, best) : portable::nothing(p);
  }
}

#endif

}  // namespace attnscope::cuda::hopper
