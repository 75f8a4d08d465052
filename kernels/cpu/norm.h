// The scale factor of an RMS norm.
#pragma once

#include <cmath>
#include <cstdint>

namespace attnscope::cpu {

inline float inverse_rms(float sum_squares, std::int64_t n, double eps) {
  const double mean = static_cast<double>(sum_squares) / static_cast<double>(n);
  return static_cast<float>(1.0 / std::sqrt(mean + eps));
}

}  // namespace attnscope::cpu
