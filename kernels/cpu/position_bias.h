// position_bias of attention (paged_params.h): buckets of distances, spread over the distances up
// to the one from which all have the last bucket.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/check.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

class PositionBias {
 public:
  // bias: absent = there is none.
  PositionBias(const as_tensor& bias, std::int32_t distance, std::int32_t causal) {
    if (!present(bias)) return;
    most_ = distance;
    const std::int64_t heads = bias.shape[1];
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t d = -most_; d <= most_; ++d) {
        values_.push_back(*at<float>(bias, bucket(d, bias.shape[0], causal), h));
      }
    }
  }

  explicit operator bool() const { return !values_.empty(); }

  // Added to n scores of a head whose keys lie `distance` on from the query, and behind that.
  void add(float* scores, std::int64_t n, std::int64_t head, std::int64_t distance) const {
    const float* of_head = values_.data() + head * (2 * most_ + 1) + most_;
    for (std::int64_t i = 0; i < n; ++i) {
      scores[i] += of_head[std::clamp(distance + i, -most_, most_)];
    }
  }

 private:
  std::int64_t bucket(std::int64_t d, std::int64_t buckets, std::int32_t causal) const {
    const std::int64_t side = causal != 0 ? buckets : buckets / 2;
    const std::int64_t apart = causal != 0 ? std::max<std::int64_t>(-d, 0) : std::abs(d);
    const std::int64_t first = causal == 0 && d > 0 ? side : 0, exact = side / 2;
    if (apart < exact) return first + apart;
    const auto e = static_cast<double>(exact);
    const double share =
        std::log(static_cast<double>(apart) / e) / std::log(static_cast<double>(most_) / e);
    // What is a whole number must not come out below it.
    const auto more = static_cast<std::int64_t>(share * static_cast<double>(side - exact) + kWhole);
    return first + std::min(side - 1, exact + more);
  }

  static constexpr double kWhole = 0x1p-30;
  std::int64_t most_ = 0;
  std::vector<float> values_;  // [H, 2 most + 1]
};

// name: position_bias, of so many heads.
inline bool check_position_bias(const as_tensor& bias, std::int32_t distance, std::int32_t causal,
                                std::int64_t heads, bool values, Check& check) {
  if (bias.rank == 0 && !present(bias)) return true;
  if (!check.tensor("position_bias", bias, AS_F32, {kAny, heads})) return false;
  if (as_bias_buckets_fit(bias.shape[0], distance, causal) == 0) {
    return check.fail(
        "position_bias has %lld buckets and bias_distance is %d, %s; the distance must be above "
        "the buckets that have one distance each, half of a side",
        static_cast<long long>(bias.shape[0]), distance, causal != 0 ? "causal" : "not causal");
  }
  if (!check.range("bias_distance", distance, 2, 1 << 20)) return false;
  for (std::int64_t n = 0; values && n < bias.shape[0]; ++n) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const float value = *at<float>(bias, n, h);
      if (std::isfinite(value)) continue;
      return check.fail("position_bias[%lld,%lld] is %g; it must be finite",
                        static_cast<long long>(n), static_cast<long long>(h),
                        static_cast<double>(value));
    }
  }
  return true;
}

}  // namespace attnscope::cpu
