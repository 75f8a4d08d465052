#include "reference/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "kernels/layout/records.h"
#include "kernels/params/numeric_rules.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

constexpr double kDims = AS_ROPE_DIM;

}  // namespace

std::array<double, kRopePairs> rope_frequencies(const as_rope& rope) {
  if (!(rope.base > 1)) {
    throw BadInput("rope.base is " + std::to_string(rope.base) + "; it must be greater than 1");
  }
  if (rope.factor > 1 && !(rope.original_max_pos > 0 && rope.beta_fast > 0 && rope.beta_slow > 0)) {
    throw BadInput(
        "rope.factor is above 1 (YaRN), which needs original_max_pos, beta_fast and beta_slow "
        "above 0");
  }
  // Each step of AS_ROPE_FP32 is rounded to binary32, the power of the base before its inverse.
  const bool fp32 = rope.table.reserved == AS_ROPE_FP32;
  const auto step = [fp32](double value) {
    return fp32 ? double{static_cast<float>(value)} : value;
  };
  std::array<double, kRopePairs> frequencies;
  for (int i = 0; i < kRopePairs; ++i) {
    double& f = frequencies[static_cast<std::size_t>(i)];
    f = fp32 ? step(1 / step(std::pow(rope.base, 2.0 * i / kDims)))
             : std::pow(rope.base, -2.0 * i / kDims);
  }
  if (rope.factor <= 1) return frequencies;

  // Pair index at which a full turn happens n times within the original context.
  const auto correction_dim = [&](double n) {
    return kDims * std::log(rope.original_max_pos / (2 * std::numbers::pi * n)) /
           (2 * std::log(rope.base));
  };
  const double last = kDims - 1;
  double low = std::clamp(std::floor(correction_dim(rope.beta_fast)), 0.0, last);
  double high = std::clamp(std::ceil(correction_dim(rope.beta_slow)), 0.0, last);
  if (low == high) high += 0.001;
  for (int i = 0; i < kRopePairs; ++i) {
    const double way = step(step(i - step(low)) / step(high - low));
    const double unchanged = step(1 - std::clamp(way, 0.0, 1.0));
    const double slowed = fp32 ? step(1 - unchanged) : std::clamp(way, 0.0, 1.0);
    double& f = frequencies[static_cast<std::size_t>(i)];
    f = step(step(step(f / step(rope.factor)) * slowed) + step(f * unchanged));
  }
  return frequencies;
}

RopeRow rope_row(std::span<const double> frequencies, std::int64_t t, bool exact) {
  RopeRow row;
  for (const double f : frequencies) {
    const double angle =
        exact ? static_cast<double>(t) * f : static_cast<float>(t) * static_cast<float>(f);
    row.cos.push_back(exact ? std::cos(angle) : static_cast<float>(std::cos(angle)));
    row.sin.push_back(exact ? std::sin(angle) : static_cast<float>(std::sin(angle)));
  }
  return row;
}

}  // namespace attnscope::reference
