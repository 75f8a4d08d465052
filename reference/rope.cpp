#include "reference/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "kernels/layout/records.h"
#include "kernels/params/numeric_rules.h"
#include "kernels/params/tensor_view.h"
#include "reference/precision.h"

namespace attnscope::reference {

namespace {

constexpr double kDims = AS_ROPE_DIM;

}  // namespace

std::array<double, kRopePairs> rope_frequencies(const as_rope& rope) {
  // Each step of AS_ROPE_FP32 is rounded to binary32, the power of the base before its inverse.
  const bool fp32 = rope.table.reserved == AS_ROPE_FP32;
  const auto step = [fp32](double value) { return fp32 ? round_to_fp32(value) : value; };
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

RopeRow rope_row_exact(const std::array<double, kRopePairs>& frequencies, std::int64_t t) {
  RopeRow row;
  for (std::size_t i = 0; i < kRopePairs; ++i) {
    const double angle = static_cast<double>(t) * frequencies[i];
    row.cos[i] = std::cos(angle);
    row.sin[i] = std::sin(angle);
  }
  return row;
}

RopeRow rope_row_fp32(const std::array<double, kRopePairs>& frequencies, std::int64_t t) {
  RopeRow row;
  for (std::size_t i = 0; i < kRopePairs; ++i) {
    const float angle = static_cast<float>(t) * static_cast<float>(frequencies[i]);
    row.cos[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    row.sin[i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
  return row;
}

void rotate(double* values, const RopeRow& row, bool inverse) {
  for (std::size_t i = 0; i < kRopePairs; ++i) {
    const double even = values[2 * i];
    const double odd = values[2 * i + 1];
    const double sin = inverse ? -row.sin[i] : row.sin[i];
    values[2 * i] = even * row.cos[i] - odd * sin;
    values[2 * i + 1] = even * sin + odd * row.cos[i];
  }
}

Rope::Rope(const as_rope& rope, bool exact) : exact_(exact) {
  if (present(rope.table)) {
    table_.emplace(rope.table, "rope.table", Shape{kAny, AS_ROPE_DIM});
    return;
  }
  if (!(rope.base > 1)) {
    throw BadInput("rope.base is " + std::to_string(rope.base) + "; it must be greater than 1");
  }
  if (rope.factor > 1 && !(rope.original_max_pos > 0 && rope.beta_fast > 0 && rope.beta_slow > 0)) {
    throw BadInput(
        "rope.factor is above 1 (YaRN), which needs original_max_pos, beta_fast and beta_slow "
        "above 0");
  }
  frequencies_ = rope_frequencies(rope);
}

RopeRow Rope::row(std::int64_t t) const {
  if (!table_) {
    return exact_ ? rope_row_exact(frequencies_, t) : rope_row_fp32(frequencies_, t);
  }
  if (t < 0 || t >= table_->rows()) {
    throw BadInput("position " + std::to_string(t) +
                   " is outside of rope.table, which has rows 0 to " +
                   std::to_string(table_->rows() - 1));
  }
  std::array<double, 2 * kRopePairs> values;
  table_->load(t, values.data());
  RopeRow row;
  std::copy_n(values.begin(), kRopePairs, row.cos.begin());
  std::copy_n(values.begin() + kRopePairs, kRopePairs, row.sin.begin());
  return row;
}

}  // namespace attnscope::reference
