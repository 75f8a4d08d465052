// One SIMD level. Compiled once per level with that level's flags and ATTNSCOPE_SIMD_LEVEL set to
// its name; nothing with external linkage but the table may be defined here.
#include "kernels/cpu/simd/blocks.h"
#include "kernels/cpu/simd/codes.h"
#include "kernels/cpu/simd/gemm.h"
#include "kernels/cpu/simd/heads.h"
#include "kernels/cpu/simd/keys.h"
#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/simd/simd.h"

#define AS_TEXT_OF(x) #x
#define AS_TEXT(x) AS_TEXT_OF(x)

namespace attnscope::cpu::simd::ATTNSCOPE_SIMD_LEVEL {

const Kernels& table() {
  static constexpr Kernels kTable = {
      .name = AS_TEXT(ATTNSCOPE_SIMD_LEVEL),
      .pairs = kPairs,
      .gemm_bf16 = dot_gemm<Bf16>,
      .gemm_f32 = dot_gemm<Float>,
      .gemm_add = gemm_add,
      .scale_max = scale_max,
      .soft_cap = soft_cap,
      .exp_sum = exp_sum,
      .scale = scale,
      .sum_squares_bf16 = sum_squares_bf16,
      .sum_squares = sum_squares,
      .sum_squares_rows = sum_squares_rows,
      .sum_bf16_squares = sum_bf16_squares,
      .turn_heads = turn_heads,
      .end_stream = end_stream,
      .scale_bf16 = scale_bf16,
      .add_bf16 = add_bf16,
      .from_bf16 = from_bf16,
      .upper_halves = upper_halves,
      .from_f16 = from_f16,
      .to_bf16 = to_bf16,
      .decode_e4m3 = decode_e4m3_row,
      .decode_e4m3_columns = decode_e4m3_columns,
      .encode_e4m3 = encode_e4m3_row,
      .quantise_blocks = quantise_blocks,
      .abs_max = abs_max,
      .range = range,
      .divide = divide,
      .decode_e5m2 = decode_e5m2_row,
      .encode_e5m2 = encode_e5m2_row,
      .decode_i8 = decode_i8_row,
      .encode_i8 = encode_i8_row,
      .e4m3 = {.dot = dot_codes<E4m3>, .add = add_codes<E4m3>},
      .e5m2 = {.dot = dot_codes<E5m2>, .add = add_codes<E5m2>},
      .i8 = {.dot = dot_codes<Int8>, .add = add_codes<Int8>},
      .best_keys = best_keys,
      .collect = collect,
      .pool = pool,
      .relu_weighted_sum = relu_weighted_sum,
  };
  return kTable;
}

}  // namespace attnscope::cpu::simd::ATTNSCOPE_SIMD_LEVEL
