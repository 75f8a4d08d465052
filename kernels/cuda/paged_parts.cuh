// The end of kernels of paged_attention whose warps each have some rows of a token.
#pragma once

#include "kernels/cuda/paged_rows.cuh"
#include "kernels/cuda/paged_steps.cuh"

namespace attnscope::cuda::paged {

// By all threads: adds what the warps have of each head, and puts it out. of_warps: of a warp and a
// head the largest exponent, of 2, and the sum of weights; `sums`: its kDims values a head, those
// of the next warp `apart` bytes behind.
template <int kDims, int kWarps, int kHeads>
__device__ __forceinline__ void add_warps(const as_paged_attention_params& p, const Numbers& n,
                                          const unsigned char* sums, int apart,
                                          const float (*of_warps)[2][kHeads], I64 t, I64 first_head,
                                          int heads, bool any, float* parts) {
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
      const auto* row = reinterpret_cast<const float*>(sums + w * apart) + head * kDims + dim;
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

}  // namespace attnscope::cuda::paged
