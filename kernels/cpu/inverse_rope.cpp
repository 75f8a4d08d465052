// inverse_rope: undoes the rotation that the values carry, at the query's position; with codes the
// result in FP8 too, with a scale for each 128 dims.
#include <algorithm>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/heads.h"
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

// Values of heads from h on, turned back; out may be in.
void turn_heads(const as_inverse_rope_params& p, std::int64_t t, std::int64_t h, std::int64_t rows,
                Bits* out, std::int64_t out_stride, bool stream) {
  simd::Turn turn;
  turn.x = at<Bits>(p.o, t, h);
  turn.x_stride = p.o.stride[1];
  turn.y = out;
  turn.y_stride = out_stride;
  turn.rows = rows;
  turn.width = p.o.shape[2];
  turn.table = rope_row(p.rope, *at<std::int64_t>(p.positions, t));
  turn.sign = -1.0f;
  turn.stream = stream;
  simd::kernels().turn_heads(turn);
}

constexpr std::int64_t kGroup = 8;  // heads that stay in the L1 between their turn and their codes

// Codes of heads from h on, at most kGroup, of rows that are given or made first.
void quantise_heads(const as_inverse_rope_params& p, std::int64_t t, std::int64_t h,
                    std::int64_t rows) {
  const std::int64_t dim = p.codes.shape[2], blocks = p.scales.shape[2];
  const as_tensor& kept = p.rows_given == 0 && present(p.out) ? p.out : p.row;
  std::vector<Bits> own(static_cast<std::size_t>(present(kept) ? 0 : rows * dim));
  std::vector<int> exponents(static_cast<std::size_t>(blocks));
  Bits* x = present(kept) ? at<Bits>(kept, t, h) : own.data();
  const std::int64_t stride = present(kept) ? kept.stride[1] : dim;
  if (p.rows_given == 0) turn_heads(p, t, h, rows, x, stride, false);
  for (const std::int64_t end = h + rows; h < end; ++h, x += stride) {
    if (p.rows_given == 0 && present(p.out) && present(p.row)) {
      std::copy_n(x, dim, at<Bits>(p.row, t, h));
    }
    quantise_fp8(x, static_cast<int>(dim), kOutputBlock, at<unsigned char>(p.codes, t, h),
                 exponents.data(), p.scale_floor);
    float* const scales = at<float>(p.scales, t, h);
    for (std::int64_t block = 0; block < blocks; ++block) {
      scales[block] = exp2i(exponents[static_cast<std::size_t>(block)]);
    }
  }
}

}  // namespace

void turn_back(const as_inverse_rope_params& p, const as_call* call) {
  const as_tensor& from = p.rows_given != 0 ? p.row : p.o;
  const std::int64_t tokens = from.shape[0], heads = from.shape[1];
  if (!present(p.codes)) {
    const bool stream = is_streamed(p.out);
    for_heads(call, tokens, heads, heads, [&](std::int64_t t, std::int64_t h, std::int64_t rows) {
      turn_heads(p, t, h, rows, at<Bits>(p.out, t, h), p.out.stride[1], stream);
    });
    return;
  }
  for_heads(call, tokens, heads, kGroup, [&](std::int64_t t, std::int64_t h, std::int64_t rows) {
    quantise_heads(p, t, h, rows);
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
