// mla_kv_insert: RoPE of the key that all heads share, and the latent row into its cache.
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/mla_rows.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/rope.cuh"
#include "kernels/layout/mla_rows.h"

namespace attnscope::cuda {
namespace {

using Bits = std::uint16_t;
using Params = as_mla_kv_insert_params;

constexpr int kWarps = 4;

// Where rows lie: their distance in bytes from page to page, and how many a page has.
struct Rows {
  unsigned char* base;
  std::int64_t page, rows, total;
  std::int32_t bytes;
};

// A warp a token: lane l has latent dims 16l.. and pair l of the rotary key. Rows are aligned to
// four bytes.
__global__ void __launch_bounds__(32 * kWarps)
    mla_kv_insert_kernel(Params p, Rows rows, std::int64_t tokens) {
  follow_kernel_before();
  const std::int64_t t = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (t >= tokens) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  Bits bits[16], turned[2];
  if (p.rows_given != 0) {
    const Bits* row = at<Bits>(p.kv_row, t);
#pragma unroll
    for (int i = 0; i < 16; ++i) bits[i] = row[16 * lane + i];
#pragma unroll
    for (int i = 0; i < 2; ++i) turned[i] = row[AS_MLA_LATENT + 2 * lane + i];
  } else {
    const Bits* kv = at<Bits>(p.kv, t);
#pragma unroll
    for (int i = 0; i < 16; ++i) bits[i] = kv[16 * lane + i];
    const Bits* key = at<Bits>(p.qkv, t) + p.qkv.shape[1] - AS_MLA_ROPE + 2 * lane;
    const std::int64_t position = *at<std::int64_t>(p.positions, t);
    AS_DEVICE_CHECK(position >= 0 && position < p.rope.table.shape[0]);
    float a = bf16_to_float(key[0]), b = bf16_to_float(key[1]);
    rotate_pair(at<float>(p.rope.table, position), lane, 1.0f, &a, &b);
    turned[0] = float_to_bf16(a);
    turned[1] = float_to_bf16(b);
    if (present(p.kv_row)) {
      Bits* row = at<Bits>(p.kv_row, t);
#pragma unroll
      for (int i = 0; i < 16; ++i) row[16 * lane + i] = bits[i];
#pragma unroll
      for (int i = 0; i < 2; ++i) row[AS_MLA_LATENT + 2 * lane + i] = turned[i];
    }
  }
  const std::int64_t slot = *at<std::int64_t>(p.slots, t);
  if (slot < 0) return;
  AS_DEVICE_CHECK(slot < rows.total);
  auto* to = reinterpret_cast<std::uint32_t*>(rows.base + slot / rows.rows * rows.page +
                                              slot % rows.rows * rows.bytes);
  const std::uint32_t pair = turned[0] | static_cast<std::uint32_t>(turned[1]) << 16;
  if (p.cache.record == AS_RECORD_BF16) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      to[8 * lane + i] = bits[2 * i] | static_cast<std::uint32_t>(bits[2 * i + 1]) << 16;
    }
    to[AS_MLA_LATENT / 2 + lane] = pair;
    return;
  }
  float x[16], amax = 0.0f;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    x[i] = bf16_to_float(bits[i]);
    amax = larger(amax, x[i]);
  }
  const float scale = block_scale(warp_max<8>(amax), p.scale_rule);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[4 * lane + i] = block_codes(x + 4 * i, scale);
  if (lane % 8 == 0) to[AS_LATENT_656_SCALES / 4 + lane / 8] = __float_as_uint(scale);
  to[AS_LATENT_656_ROPE / 4 + lane] = pair;
}

}  // namespace

int mla_kv_insert(const Params& p, const Launch& launch) {
  const std::int64_t tokens = p.slots.shape[0];
  if (tokens == 0) return 0;
  const bool paged = p.cache.addressing == AS_PAGED;
  Rows rows{};
  rows.base = static_cast<unsigned char*>(p.cache.data.data);
  rows.page = p.cache.data.stride[0];
  rows.rows = paged ? p.cache.rows_per_block : 1;
  rows.total = p.cache.data.shape[0] * rows.rows;
  rows.bytes = static_cast<std::int32_t>(as_mla_row_bytes(p.cache.record));
  const auto blocks = static_cast<unsigned>((tokens + kWarps - 1) / kWarps);
  return launch_early(launch.gpu.hopper, launch.stream, blocks, 32 * kWarps, 0,
                      mla_kv_insert_kernel, p, rows, tokens);
}

}  // namespace attnscope::cuda
