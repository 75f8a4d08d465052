// RMS norm and the Hadamard transform of one vector, in float64.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "reference/precision.h"

namespace attnscope::reference {

// x <- x * rsqrt(mean(x^2) + eps) * weight; weight NULL = 1.
inline void normalise(double* x, std::int64_t n, double eps, const double* weight,
                      const Precision& precision) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum = precision.sum(sum + x[i] * x[i]);
  const double factor = 1 / std::sqrt(sum / static_cast<double>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) x[i] *= weight == nullptr ? factor : factor * weight[i];
}

// x <- H x / sqrt(n), H the Sylvester Hadamard matrix of size n, a power of two.
inline void hadamard_transform(double* x, std::int64_t n) {
  for (std::int64_t half = 1; half < n; half *= 2) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (i & half) continue;
      const double sum = x[i] + x[i + half];
      x[i + half] = x[i] - x[i + half];
      x[i] = sum;
    }
  }
  const double factor = 1 / std::sqrt(static_cast<double>(n));
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace attnscope::reference
