// The normalised Hadamard transform of 128 values (natural order).
#pragma once

#include "kernels/layout/records.h"

namespace attnscope::cpu {

inline void hadamard(float* x) {
  constexpr float kScale = 0.08838834764831845f;  // 128^-0.5
  for (int step = 1; step < AS_INDEX_DIM; step *= 2) {
    for (int base = 0; base < AS_INDEX_DIM; base += 2 * step) {
      for (int i = base; i < base + step; ++i) {
        const float a = x[i];
        const float b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
    }
  }
  for (int i = 0; i < AS_INDEX_DIM; ++i) x[i] *= kScale;
}

}  // namespace attnscope::cpu
