// inverse_rope: undoes the rotation that the values carry, at the query's position; with codes the
// result in FP8 too, with a scale for each 128 dims.
#include <algorithm>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/inverse_rope_check.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantise.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/turn_back.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;

constexpr int kOutputBlock = AS_PROJECTION_BLOCK;

// One head's values, turned back; out may be in.
void turn_row(const as_inverse_rope_params& p, std::int64_t t, const Bits* in, Bits* out) {
  const simd::Kernels& simd = simd::kernels();
  const std::int64_t plain = p.o.shape[2] - AS_ROPE_DIM;
  float turned[AS_ROPE_DIM];
  simd.from_bf16(in + plain, AS_ROPE_DIM, turned);
  rotate(turned, rope_row(p.rope, *at<std::int64_t>(p.positions, t)), -1.0f);
  if (out != in) std::memcpy(out, in, static_cast<std::size_t>(plain) * sizeof(*in));
  simd.to_bf16(turned, 1.0f, AS_ROPE_DIM, out + plain);
}

void quantise_head(const as_inverse_rope_params& p, std::int64_t t, std::int64_t h,
                   const Bits* row) {
  float x[kOutputBlock];
  for (std::int64_t block = 0; block < p.scales.shape[2]; ++block) {
    simd::kernels().from_bf16(row + block * kOutputBlock, kOutputBlock, x);
    const int exponent = quantise_fp8(
        x, kOutputBlock, at<unsigned char>(p.codes, t, h, block * kOutputBlock), p.scale_floor);
    *at<float>(p.scales, t, h, block) = exp2i(exponent);
  }
}

}  // namespace

void turn_back(const as_inverse_rope_params& p, const as_call* call) {
  const as_tensor& from = p.rows_given != 0 ? p.row : p.o;
  const std::int64_t heads = from.shape[1], dim = from.shape[2];
  parallel_for(call, from.shape[0] * heads, 64, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Bits> own(static_cast<std::size_t>(dim));
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t t = item / heads, h = item % heads;
      const Bits* row = at<Bits>(from, t, h);
      if (p.rows_given == 0) {
        const as_tensor& kept = present(p.out) ? p.out : p.row;
        Bits* out = present(kept) ? at<Bits>(kept, t, h) : own.data();
        turn_row(p, t, row, out);
        if (present(p.out) && present(p.row)) std::copy_n(out, dim, at<Bits>(p.row, t, h));
        row = out;
      }
      if (present(p.codes)) quantise_head(p, t, h, row);
    }
  });
}

void inverse_rope(const as_inverse_rope_params& p, const as_call* call, Check& check) {
  if (!check_inverse_rope(p, check)) return;
  for (std::int64_t t = 0; p.rows_given == 0 && t < p.o.shape[0]; ++t) {
    if (!check.rope_position(p.rope, t, *at<std::int64_t>(p.positions, t))) return;
  }
  turn_back(p, call);
}

}  // namespace attnscope::cpu
