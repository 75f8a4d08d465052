// index_query: RoPE, Hadamard transform and FP8 of the queries of an indexer that scores tokens.
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

void index_query(const as_index_query_params& p, const as_call* call, Check& check) {
  using Bits = std::uint16_t;
  if (!check_params(p, true, check)) return;
  const simd::Kernels& simd = simd::kernels();
  const std::int64_t heads = p.weights_raw.shape[1];
  const float dim_scale = static_cast<float>(1.0 / std::sqrt(double{AS_INDEX_DIM}));
  const float head_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads)));
  parallel_for(call, p.weights_raw.shape[0] * heads, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t t = item / heads, j = item % heads;
      Bits made[AS_INDEX_DIM];
      const Bits* row = made;
      float x[AS_INDEX_DIM];
      if (p.rows_given != 0) {
        row = at<Bits>(p.q_row, t, j);
      } else {
        simd.from_bf16(at<Bits>(p.q_raw, t, j), AS_INDEX_DIM, x);
        finish_index_row(x, rope_row(p.rope, *at<std::int64_t>(p.positions, t)), p.hadamard != 0,
                         made);
        if (present(p.q_row)) std::memcpy(at<Bits>(p.q_row, t, j), made, sizeof(made));
      }
      simd.from_bf16(row, AS_INDEX_DIM, x);
      const float scale = quantise_block(x, p.scale_rule, at<unsigned char>(p.q, t, j));
      *at<float>(p.weights, t, j) =
          *at<float>(p.weights_raw, t, j) * head_scale * scale * dim_scale;
    }
  });
}

}  // namespace attnscope::cpu
