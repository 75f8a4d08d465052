#include "kernels/cpu/quantise.h"

#include "kernels/cpu/simd/simd.h"
#include "kernels/layout/records.h"

namespace attnscope::cpu {

int quantise_fp8(const float* x, int n, unsigned char* codes, std::int32_t scale_floor) {
  const simd::Kernels& simd = simd::kernels();
  const int exponent = fp8_exponent(simd.abs_max(x, n), scale_floor);
  simd.encode_e4m3(x, exponent == kInfiniteExponent ? 0.0f : exp2i(-exponent), n, codes);
  return exponent;
}

void quantise_fp8(const std::uint16_t* x, int n, int block, unsigned char* codes, int* exponents,
                  std::int32_t scale_floor) {
  static_assert(simd::kInfiniteExponent == kInfiniteExponent);
  simd::kernels().quantise_blocks(x, n, block, fp8_floor(scale_floor), codes, exponents);
}

void insert_row(const as_cache& cache, std::int64_t slot, const std::uint16_t* row,
                const QuantiseRules& rules) {
  const as_row_address to = as_cache_row(&cache, slot);
  switch (cache.record) {
    case AS_RECORD_LATENT: {
      int exponents[AS_QUANT_BLOCKS];
      quantise_fp8(row, AS_NOPE_DIM, AS_QUANT_BLOCK, to.payload, exponents, rules.scale_floor);
      for (int block = 0; block < AS_QUANT_BLOCKS; ++block) {
        to.scales[block] = exponent_to_ue8m0(exponents[block]);
      }
      to.scales[AS_QUANT_BLOCKS] = 0;
      float rope[AS_ROPE_DIM];  // a NaN becomes a quiet one
      std::uint16_t quiet[AS_ROPE_DIM];
      simd::kernels().from_bf16(row + AS_NOPE_DIM, AS_ROPE_DIM, rope);
      simd::kernels().to_bf16(rope, 1.0f, AS_ROPE_DIM, quiet);
      std::memcpy(to.payload + AS_NOPE_DIM, quiet, sizeof(quiet));
      break;
    }
    case AS_RECORD_INDEX_FP8: {
      int exponent;
      quantise_fp8(row, AS_INDEX_DIM, AS_INDEX_DIM, to.payload, &exponent, rules.scale_floor);
      const float scale = exp2i(exponent);
      std::memcpy(to.scales, &scale, sizeof(scale));
      break;
    }
    default:
      float values[AS_HEAD_DIM];
      simd::kernels().from_bf16(row, cache.width, values);
      quantise_row(cache.record, cache.width, values, to.payload, to.scales, rules);
      break;
  }
}

}  // namespace attnscope::cpu
