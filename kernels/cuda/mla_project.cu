// mla_q_absorb and mla_v_up: both parts of kv_b_proj as products of every head, and RoPE of the
// queries' last dims.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/rope.cuh"

namespace attnscope::cuda {
namespace {

using Bits = std::uint16_t;

constexpr int kWarps = 8;

// A warp a token and head, a pair a lane.
__global__ void __launch_bounds__(32 * kWarps)
    turn_queries_kernel(as_mla_q_absorb_params p, std::int64_t items) {
  follow_kernel_before();
  const std::int64_t item = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (item >= items) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t heads = p.q.shape[1], t = item / heads, h = item % heads;
  const std::int64_t position = *at<std::int64_t>(p.positions, t);
  AS_DEVICE_CHECK(position >= 0 && position < p.rope.table.shape[0]);
  const Bits* from = at<Bits>(p.q_raw, t, h) + p.q_raw.shape[2] - AS_MLA_ROPE + 2 * lane;
  Bits* to = at<Bits>(p.q, t, h) + AS_MLA_LATENT + 2 * lane;
  float a = bf16_to_float(from[0]), b = bf16_to_float(from[1]);
  rotate_pair(at<float>(p.rope.table, position), lane, 1.0f, &a, &b);
  to[0] = float_to_bf16(a);
  to[1] = float_to_bf16(b);
}

}  // namespace

std::size_t workspace_bytes(const as_mla_q_absorb_params&, const Gpu&) {
  return library_workspace();
}
std::size_t workspace_bytes(const as_mla_v_up_params&, const Gpu&) { return library_workspace(); }

int mla_q_absorb(const as_mla_q_absorb_params& p, const Launch& launch) {
  const std::int64_t items = p.q.shape[0] * p.q.shape[1];
  if (items == 0) return 0;
  Product m{};
  m.x = p.q_raw.data;
  m.weight = p.kv_b.data;
  m.y = p.q.data;
  m.rows = p.q.shape[0];
  m.in = p.q_raw.shape[2] - AS_MLA_ROPE;
  m.out = AS_MLA_LATENT;
  m.batches = p.q.shape[1];
  m.x_stride = p.q_raw.stride[0];
  m.x_batch = p.q_raw.stride[1];
  m.weight_stride = p.kv_b.stride[1];
  m.weight_batch = p.kv_b.stride[0];
  m.y_stride = p.q.stride[0];
  m.y_batch = p.q.stride[1];
  m.by_input = true;
  if (const int status = project(m, launch); status != 0) return status;
  const auto blocks = static_cast<unsigned>((items + kWarps - 1) / kWarps);
  return launch_early(launch.gpu.hopper, launch.stream, blocks, 32 * kWarps, 0, turn_queries_kernel,
                      p, items);
}

int mla_v_up(const as_mla_v_up_params& p, const Launch& launch) {
  const std::int64_t skipped = p.kv_b.shape[1] - p.y.shape[2];
  Product m{};
  m.x = p.o.data;
  m.weight = static_cast<const Bits*>(p.kv_b.data) + skipped * p.kv_b.stride[1];
  m.y = p.y.data;
  m.rows = p.o.shape[0];
  m.in = AS_MLA_LATENT;
  m.out = p.y.shape[2];
  m.batches = p.o.shape[1];
  m.x_stride = p.o.stride[0];
  m.x_batch = p.o.stride[1];
  m.weight_stride = p.kv_b.stride[1];
  m.weight_batch = p.kv_b.stride[0];
  m.y_stride = p.y.stride[0];
  m.y_batch = p.y.stride[1];
  return project(m, launch);
}

}  // namespace attnscope::cuda
