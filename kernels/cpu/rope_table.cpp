#include "kernels/cpu/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/cpu/parallel.h"
#include "kernels/layout/records.h"
#include "kernels/params/numeric_rules.h"

namespace attnscope::cpu {
namespace {

// Index of the pair that turns n times over the original context.
double correction_dim(const as_rope& rope, int dims, double turns) {
  return dims * std::log(rope.original_max_pos / (2.0 * std::numbers::pi * turns)) /
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

std::vector<double> rope_frequencies(const as_rope& rope, int dims) {
  const bool fp32 = rope.table.reserved == AS_ROPE_FP32;
  const auto pairs = static_cast<std::size_t>(dims / 2);
  std::vector<double> f(pairs);
  for (int i = 0; i < dims / 2; ++i) {
    f[i] = fp32 ? double{1.0f / static_cast<float>(std::pow(rope.base, 2.0 * i / dims))}
                : std::pow(rope.base, -2.0 * i / dims);
  }
  if (rope.factor <= 1.0) return f;
  const double last = dims - 1;
  double low = std::floor(correction_dim(rope, dims, rope.beta_fast));
  double high = std::ceil(correction_dim(rope, dims, rope.beta_slow));
  low = std::clamp(low, 0.0, last);
  high = std::clamp(high, 0.0, last);
  if (low == high) high += 0.001;
  for (int i = 0; i < dims / 2; ++i) {
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
  const std::size_t pairs = frequencies.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    const float angle = static_cast<float>(t) * static_cast<float>(frequencies[i]);
    row[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    row[pairs + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
}

void build_rope_table(const as_rope& rope, std::int64_t max_pos, float* out,
                      const as_threads* threads, int dims) {
  const std::vector<double> frequencies = rope_frequencies(rope, dims);
  parallel_for(threads, max_pos, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      rope_table_row(frequencies, t, out + t * dims);
    }
  });
}

}  // namespace attnscope::cpu
