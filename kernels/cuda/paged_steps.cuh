// Steps of paged_attention on the tensor cores that a warp takes for 16 query rows: scores of keys,
// weights, sums of values. Row l / 4 of a lane l is its first row, l / 4 + 8 its second; of every 8
// columns it has 2 (l % 4) and the next (mma.cuh).
#pragma once

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/paged_rows.cuh"

namespace attnscope::cuda::paged {

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// To 2^-22 of 1, in six instructions and without a branch, where tanhf takes thirty.
__device__ __forceinline__ float short_tanh(float x) {
  return 1.0f - __fdividef(2.0f, exp2_of(2.0f * kLog2E * x) + 1.0f);
}

// What turns products into logits. Code is unrolled over a lane's columns: `rounded` weights, which
// are so many that this counts, do with short_tanh.
struct Exponents {
  float scale, cap;
  float slope[2];
  std::int32_t position[2];

  // A positive scale alone: the largest product is the largest logit.
  __device__ __forceinline__ bool plain() const {
    return scale > 0.0f && cap <= 0.0f && slope[0] == 0.0f && slope[1] == 0.0f;
  }
  // Of `columns` keys, of which the lane's first is row `column`, the products become logits.
  template <int columns, bool rounded>
  __device__ __forceinline__ void apply(float (&s)[columns / 8][4], std::int32_t column) const {
#pragma unroll
    for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) s[n][j] *= scale;
    }
    if (cap > 0.0f) {
      const float inverse = 1.0f / cap;
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          s[n][j] = cap * (rounded ? short_tanh(s[n][j] * inverse) : tanhf(s[n][j] / cap));
        }
      }
    }
    if (slope[0] == 0.0f && slope[1] == 0.0f) return;
#pragma unroll
    for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int32_t apart = position[j / 2] - (column + 8 * n + j % 2);
        s[n][j] -= slope[j / 2] * static_cast<float>(apart > 0 ? apart : -apart);
      }
    }
  }
};

// Of a lane's two rows: the largest exponent so far, and the sum of weights of its columns.
struct Weights {
  float best[2] = {minus_infinity(), minus_infinity()};
  float sum[2] = {0.0f, 0.0f};

  // Products of `columns` keys from `row` on become weights; factor: of what was summed before.
  // Columns outside first .. end - 1 are none, where `masked`.
  template <int columns, bool rounded = false>
  __device__ __forceinline__ void take(float (&s)[columns / 8][4], const Exponents& exponents,
                                       bool masked, std::int32_t row,
                                       const std::int32_t (&first)[2], const std::int32_t (&end)[2],
                                       float (&factor)[2]) {
    const std::int32_t column = row + 2 * (threadIdx.x % 4);
    float scale = kLog2E;
    if (exponents.plain()) {
      scale *= exponents.scale;
    } else {
      exponents.apply<columns, rounded>(s, column);
    }
    if (masked) {
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const std::int32_t at_row = column + 8 * n + j % 2;
          if (at_row < first[j / 2] || at_row >= end[j / 2]) s[n][j] = minus_infinity();
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float larger = s[0][2 * i];
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        larger = fmaxf(larger, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
      }
      larger = fmaxf(larger, __shfl_xor_sync(kAllLanes, larger, 1));
      larger = fmaxf(larger, __shfl_xor_sync(kAllLanes, larger, 2));
      larger = fmaxf(best[i], larger * scale);
      const float shift = larger == minus_infinity() ? 0.0f : larger;
      factor[i] = best[i] == minus_infinity() ? 0.0f : exp2_of(best[i] - shift);
      best[i] = larger;
      float more[2] = {};
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
        for (int j = 2 * i; j < 2 * i + 2; ++j) {
          s[n][j] = exp2_of(fmaf(s[n][j], scale, -shift));
          more[j % 2] += s[n][j];
        }
      }
      sum[i] = sum[i] * factor[i] + (more[0] + more[1]);
    }
  }

  // Of all columns, in every lane of the row.
  __device__ __forceinline__ void sum_up() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] += __shfl_xor_sync(kAllLanes, sum[i], 1);
      sum[i] += __shfl_xor_sync(kAllLanes, sum[i], 2);
    }
  }
};

__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
__device__ __forceinline__ float low_bf16(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_bf16(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// Weights of 16 columns as the left operand of a step.
__device__ __forceinline__ void pack_weights(const float (&a)[4], const float (&b)[4],
                                             std::uint32_t (&out)[4]) {
  out[0] = pack_bf16(a[0], a[1]);
  out[1] = pack_bf16(a[2], a[3]);
  out[2] = pack_bf16(b[0], b[1]);
  out[3] = pack_bf16(b[2], b[3]);
}
// Weights of 16 columns as the sum of two such operands. No part of a weight is zero or negative,
// so that an infinite value stays what it is.
__device__ __forceinline__ void split_weights(const float (&a)[4], const float (&b)[4],
                                              std::uint32_t (&large)[4],
                                              std::uint32_t (&small)[4]) {
  const auto split = [](float x, float y, std::uint32_t& cut, std::uint32_t& rest) {
    cut = __byte_perm(__float_as_uint(x), __float_as_uint(y), 0x7632);
    rest = pack_bf16(fmaxf(x - low_bf16(cut), 0x1p-126f), fmaxf(y - high_bf16(cut), 0x1p-126f));
  };
  split(a[0], a[1], large[0], small[0]);
  split(a[2], a[3], large[1], small[1]);
  split(b[0], b[1], large[2], small[2]);
  split(b[2], b[3], large[3], small[3]);
}

// 16 bytes from global to shared memory; zeros in their place where `there` is false.
__device__ __forceinline__ void copy_chunk(std::uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
// 4 bytes, likewise.
__device__ __forceinline__ void copy_word(std::uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
               "r"(there ? 4 : 0)
               : "memory");
}
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int left>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

}  // namespace attnscope::cuda::paged
