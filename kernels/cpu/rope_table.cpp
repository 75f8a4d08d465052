#include "kernels/cpu/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/cpu/parallel.h"
#include "kernels/layout/records.h"
#include "kernels/params/numeric_rules.h"

namespace attnscope::cpu {
namespace {

constexpr int kRopeDim = AS_ROPE_DIM;
constexpr int kPairs = kRopeDim / 2;

// Index of the pair that turns n times over the original context.
double correction_dim(const as_rope& rope, double turns) {
  return kRopeDim * std::log(rope.original_max_pos / (2.0 * std::numbers::pi * turns)) /
         (2.0 * std::log(rope.base));
}

// YaRN of pair i, every step in fp32.
float blended(const as_rope& rope, float f, int i, double low, double high) {
  const float ramp =
      std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low),
                 0.0f, 1.0f);
  const float kept = 1.0f - ramp;
  const float slow = f / static_cast<float>(rope.factor) * (1.0f - kept);
  const float fast = f * kept;
  return slow + fast;
}

}  // namespace

std::vector<double> rope_frequencies(const as_rope& rope) {
  const bool fp32 = rope.table.reserved == AS_ROPE_FP32;
  std::vector<double> f(kPairs);
  for (int i = 0; i < kPairs; ++i) {
    f[i] = fp32 ? double{1.0f / static_cast<float>(std::pow(rope.base, 2.0 * i / kRopeDim))}
                : std::pow(rope.base, -2.0 * i / kRopeDim);
  }
  if (rope.factor <= 1.0) return f;
  constexpr double kLast = AS_ROPE_DIM - 1;
  double low = std::floor(correction_dim(rope, rope.beta_fast));
  double high = std::ceil(correction_dim(rope, rope.beta_slow));
  low = std::clamp(low, 0.0, kLast);
  high = std::clamp(high, 0.0, kLast);
  if (low == high) high += 0.001;
  for (int i = 0; i < kPairs; ++i) {
    if (fp32) {
      f[i] = double{blended(rope, static_cast<float>(f[i]), i, low, high)};
      continue;
    }
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    f[i] = f[i] / rope.factor * ramp + f[i] * (1.0 - ramp);
  }
  return f;
}

void rope_table_row(const std::vector<double>& frequencies, std::int64_t t, float* row) {
  for (int i = 0; i < kPairs; ++i) {
    const float angle = static_cast<float>(t) * static_cast<float>(frequencies[i]);
    row[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    row[kPairs + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
}

void build_rope_table(const as_rope& rope, std::int64_t max_pos, float* out,
                      const as_threads* threads) {
  const std::vector<double> frequencies = rope_frequencies(rope);
  parallel_for(threads, max_pos, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      rope_table_row(frequencies, t, out + t * AS_ROPE_DIM);
    }
  });
}

}  // namespace attnscope::cpu
