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

void insert_row(const as_cache& cache, std::int64_t slot, const float* row,
                const QuantiseRules& rules) {
  const as_row_address to = as_cache_row(&cache, slot);
  switch (cache.record) {
    case AS_RECORD_LATENT:
      for (int block = 0; block < AS_QUANT_BLOCKS; ++block) {
        const int at = block * AS_QUANT_BLOCK;
        to.scales[block] = exponent_to_ue8m0(
            quantise_fp8(row + at, AS_QUANT_BLOCK, to.payload + at, rules.scale_floor));
      }
      to.scales[AS_QUANT_BLOCKS] = 0;
      std::uint16_t rope[AS_ROPE_DIM];
      simd::kernels().to_bf16(row + AS_NOPE_DIM, 1.0f, AS_ROPE_DIM, rope);
      std::memcpy(to.payload + AS_NOPE_DIM, rope, sizeof(rope));
      break;
    case AS_RECORD_INDEX_FP8: {
      const float scale = exp2i(quantise_fp8(row, AS_INDEX_DIM, to.payload, rules.scale_floor));
      std::memcpy(to.scales, &scale, sizeof(scale));
      break;
    }
    default:
      quantise_row(cache.record, cache.width, row, to.payload, to.scales, rules);
      break;
  }
}

}  // namespace attnscope::cpu
