// FP8 blocks of absorbed MLA: codes of 128 values under one fp32 scale, by as_scale_rule.
#pragma once

#include <cstdint>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/simd/simd.h"

namespace attnscope::cpu {

inline constexpr int kFp8Block = 128;

// Writes the codes and returns the scale.
inline float quantise_block(const float* x, std::int32_t scale_rule, unsigned char* codes) {
  const simd::Kernels& simd = simd::kernels();
  const float measured = simd.abs_max(x, kFp8Block);
  const float most = measured > kFp8AmaxFloor ? measured : kFp8AmaxFloor;
  const float scale = scale_rule == AS_SCALE_FLOAT ? most / 448.0f : exp2i(fp8_exponent(measured));
  float scaled[kFp8Block];
  for (int i = 0; i < kFp8Block; ++i) scaled[i] = x[i] / scale;
  simd.encode_e4m3(scaled, 1.0f, kFp8Block, codes);
  return scale;
}

}  // namespace attnscope::cpu
