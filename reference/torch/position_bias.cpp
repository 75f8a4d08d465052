#include "reference/torch/position_bias.h"

#include <cmath>
#include <vector>

namespace attnscope::reference {
namespace {

// The bucket of a distance `apart` of 0 or more, of n on its side: by powers, so that distances
// where a bucket begins exactly are counted to it.
std::int64_t bucket_of_side(std::int64_t apart, std::int64_t n, double most) {
  const std::int64_t exact = n / 2;
  if (apart < exact) return apart;
  const auto e = static_cast<double>(exact);
  const double grown = std::pow(static_cast<double>(apart) / e, static_cast<double>(n - exact));
  std::int64_t bucket = exact;
  while (bucket + 1 < n) {
    const double begins = std::pow(most / e, static_cast<double>(bucket + 1 - exact));
    if (grown < begins * (1 - 1e-9)) break;
    ++bucket;
  }
  return bucket;
}

}  // namespace

Tensor position_bias(const as_tensor& bias, std::int64_t heads, std::int32_t distance, bool causal,
                     const Tensor& distances) {
  const Tensor values = floats(bias, "position_bias", {kAny, heads});
  if (as_bias_buckets_fit(values.size(0), distance, causal ? 1 : 0) == 0) {
    throw BadInput("position_bias has " + std::to_string(values.size(0)) +
                   " buckets, bias_distance is " + std::to_string(distance));
  }
  const std::int64_t side = causal ? values.size(0) : values.size(0) / 2;
  std::vector<std::int64_t> buckets;
  for (std::int64_t d = -distance; d <= distance; ++d) {
    const std::int64_t apart = causal ? std::max<std::int64_t>(-d, 0) : std::abs(d);
    const std::int64_t behind = !causal && d > 0 ? side : 0;
    buckets.push_back(behind + bucket_of_side(apart, side, distance));
  }
  const Tensor of_distance =
      values.index_select(0, at::tensor(buckets, at::kLong).to(values.device()));
  const Tensor place = distances.clamp(-distance, distance).add(distance).to(values.device());
  auto shape = distances.sizes().vec();
  shape.push_back(heads);
  return of_distance.index_select(0, place.reshape({-1})).reshape(shape);
}

}  // namespace attnscope::reference
