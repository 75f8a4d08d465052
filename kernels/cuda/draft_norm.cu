// draft_norm: norms of the hidden state and of the next token's embedding.
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda {
namespace {

constexpr int kDraftThreads = 256;

// A block a row; blockIdx.y chooses the norm.
__global__ void draft_norm_kernel(as_draft_norm_params p) {
  using Bits = std::uint16_t;
  follow_kernel_before();
  const std::int64_t t = blockIdx.x, width = p.h_weight.shape[0];
  const bool of_hidden = blockIdx.y == 0;
  Bits* y = of_hidden ? at<Bits>(p.h, t) : at<Bits>(p.e, t);
  const Bits* weight = at<Bits>(of_hidden ? p.h_weight : p.e_weight);
  const Bits* x = at<Bits>(p.hidden, t);
  if (!of_hidden) {
    const std::int32_t token = *at<std::int32_t>(p.tokens, t);
    if (token < 0 || *at<std::int64_t>(p.positions, t) == 0) {
      for (std::int64_t i = threadIdx.x; i < width; i += kDraftThreads) y[i] = 0;
      return;
    }
    AS_DEVICE_CHECK(token < p.embedding.shape[0]);
    x = at<Bits>(p.embedding, token);
  }
  float squares = 0.0f;
  for (std::int64_t i = threadIdx.x; i < width; i += kDraftThreads) {
    squares = fmaf(bf16_to_float(x[i]), bf16_to_float(x[i]), squares);
  }
  const float factor = inverse_rms(block_sum(squares), width, p.eps);
  for (std::int64_t i = threadIdx.x; i < width; i += kDraftThreads) {
    y[i] = float_to_bf16(bf16_to_float(x[i]) * factor * bf16_to_float(weight[i]));
  }
}

}  // namespace

int draft_norm(const as_draft_norm_params& p, const Launch& launch) {
  if (p.hidden.shape[0] == 0) return 0;
  const dim3 grid(static_cast<unsigned>(p.hidden.shape[0]), 2);
  return launch_early(launch.gpu.hopper, launch.stream, grid, kDraftThreads, 0, draft_norm_kernel,
                      p);
}

}  // namespace attnscope::cuda
