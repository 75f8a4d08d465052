// index_key_insert: LayerNorm, RoPE, Hadamard transform and FP8 of a token's index key.
#include <cmath>
#include <cstring>

#include "kernels/cpu/block_fp8.h"
#include "kernels/cpu/index_row.h"
#include "kernels/cpu/mla_checks.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rope.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;
using Params = as_index_key_insert_params;

constexpr double kDims = AS_INDEX_DIM;

// Of four sums, so that no addition waits for the one before.
double sum_of(const double* x) {
  double parts[4] = {};
  for (int i = 0; i < AS_INDEX_DIM; i += 4) {
    for (int j = 0; j < 4; ++j) parts[j] += x[i + j];
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// x [128] normalised in float64, rounded once to bf16 values.
void layer_norm(const Params& p, const Bits* k, float* x) {
  const Bits *const weight = at<Bits>(p.weight), *const bias = at<Bits>(p.bias);
  double off[AS_INDEX_DIM], squares[AS_INDEX_DIM];
  for (int i = 0; i < AS_INDEX_DIM; ++i) off[i] = static_cast<double>(bf16_to_float(k[i]));
  const double mean = sum_of(off) / kDims;
  for (int i = 0; i < AS_INDEX_DIM; ++i) {
    off[i] -= mean;
    squares[i] = off[i] * off[i];
  }
  const double factor = 1.0 / std::sqrt(sum_of(squares) / kDims + p.eps);
  for (int i = 0; i < AS_INDEX_DIM; ++i) {
    x[i] = round_bf16(off[i] * factor * static_cast<double>(bf16_to_float(weight[i])) +
                      static_cast<double>(bf16_to_float(bias[i])));
  }
}

}  // namespace

void index_key_insert(const Params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  parallel_for(call, p.slots.shape[0], 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      Bits made[AS_INDEX_DIM];
      const Bits* row = made;
      float x[AS_INDEX_DIM];
      if (p.rows_given != 0) {
        row = at<Bits>(p.row, t);
      } else {
        layer_norm(p, at<Bits>(p.k, t), x);
        finish_index_row(x, rope_row(p.rope, *at<std::int64_t>(p.positions, t)), p.hadamard != 0,
                         made);
        if (present(p.row)) std::memcpy(at<Bits>(p.row, t), made, sizeof(made));
      }
      const std::int64_t slot = *at<std::int64_t>(p.slots, t);
      if (slot < 0) continue;
      simd::kernels().from_bf16(row, AS_INDEX_DIM, x);
      const as_row_address to = as_cache_row(&p.cache, slot);
      const float scale = quantise_block(x, p.scale_rule, to.payload);
      std::memcpy(to.scales, &scale, sizeof(scale));
    }
  });
}

}  // namespace attnscope::cpu
