// rms_norm (attn_norm, final_norm) and q_kv_norm: y = x * rsqrt(mean(x^2) + eps) * weight.
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda {
namespace {

using Bits = std::uint16_t;
constexpr int kThreads = 256;
constexpr int kVector = 8;  // bf16 values in 16 bytes

struct Half {  // one norm: rows of n values
  const Bits* x;
  const Bits* weight;
  Bits* y;
  std::int64_t x_stride, y_stride, n;
  float plus;  // added to each weight
};

struct Eight {
  uint4 bits;
  __device__ std::uint32_t pair(int i) const {
    return i == 0 ? bits.x : i == 1 ? bits.y : i == 2 ? bits.z : bits.w;
  }
  __device__ float value(int i) const {
    const std::uint32_t two = pair(i / 2);
    return __uint_as_float(i % 2 == 0 ? two << 16 : two & 0xffff0000u);
  }
};

// A block a row; blockIdx.y chooses the norm. vectors: all rows are 16-byte aligned and n is a
// multiple of 8.
template <bool vectors>
__global__ void rms_norm_kernel(Half first, Half second, double eps) {
  follow_kernel_before();
  const Half& h = blockIdx.y == 0 ? first : second;
  const Bits* x = h.x + blockIdx.x * h.x_stride;
  Bits* y = h.y + blockIdx.x * h.y_stride;
  float squares = 0.0f;
  if (vectors) {
    for (std::int64_t i = threadIdx.x * kVector; i < h.n; i += kThreads * kVector) {
      const Eight v{*reinterpret_cast<const uint4*>(x + i)};
#pragma unroll
      for (int k = 0; k < kVector; ++k) squares = fmaf(v.value(k), v.value(k), squares);
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < h.n; i += kThreads) {
      squares = fmaf(bf16_to_float(x[i]), bf16_to_float(x[i]), squares);
    }
  }
  const float factor = inverse_rms(block_sum(squares), h.n, eps);
  if (vectors) {
    for (std::int64_t i = threadIdx.x * kVector; i < h.n; i += kThreads * kVector) {
      const Eight v{*reinterpret_cast<const uint4*>(x + i)};
      const Eight w{*reinterpret_cast<const uint4*>(h.weight + i)};
      std::uint32_t out[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const std::uint32_t low =
            float_to_bf16(v.value(2 * k) * factor * (h.plus + w.value(2 * k)));
        const std::uint32_t high =
            float_to_bf16(v.value(2 * k + 1) * factor * (h.plus + w.value(2 * k + 1)));
        out[k] = low | high << 16;
      }
      *reinterpret_cast<uint4*>(y + i) = make_uint4(out[0], out[1], out[2], out[3]);
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < h.n; i += kThreads) {
      y[i] = float_to_bf16(bf16_to_float(x[i]) * factor * (h.plus + bf16_to_float(h.weight[i])));
    }
  }
}

Half make_half(const as_tensor& x, std::int64_t column, const as_tensor& weight, const as_tensor& y,
               float plus = 0.0f) {
  return {static_cast<const Bits*>(x.data) + column,
          static_cast<const Bits*>(weight.data),
          static_cast<Bits*>(y.data),
          x.stride[0],
          y.stride[0],
          weight.shape[0],
          plus};
}

bool aligned(const Half& h) {
  const auto bits = reinterpret_cast<std::uintptr_t>(h.x) |
                    reinterpret_cast<std::uintptr_t>(h.weight) |
                    reinterpret_cast<std::uintptr_t>(h.y);
  return bits % 16 == 0 && (h.x_stride | h.y_stride | h.n) % kVector == 0;
}

int launch_norms(const Half& first, const Half& second, int norms, std::int64_t rows, double eps,
                 const Launch& launch) {
  if (rows == 0) return 0;
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(norms));
  const auto kernel =
      aligned(first) && aligned(second) ? rms_norm_kernel<true> : rms_norm_kernel<false>;
  return launch_early(launch.gpu.hopper, launch.stream, grid, kThreads, 0, kernel, first, second,
                      eps);
}

}  // namespace

int rms_norm(const as_rms_norm_params& p, const Launch& launch) {
  const float plus = p.weight_plus_one != 0 ? 1.0f : 0.0f;
  const Half h = make_half(p.x, 0, p.weight, p.y, plus);
  return launch_norms(h, h, 1, p.x.shape[0], p.eps, launch);
}

int q_kv_norm(const as_q_kv_norm_params& p, const Launch& launch) {
  return launch_norms(make_half(p.qkv, 0, p.q_weight, p.qr),
                      make_half(p.qkv, p.q_weight.shape[0], p.kv_weight, p.kv), 2, p.qkv.shape[0],
                      p.eps, launch);
}

}  // namespace attnscope::cuda
