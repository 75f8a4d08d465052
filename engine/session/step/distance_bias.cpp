#include "engine/session/step/distance_bias.h"

#include <algorithm>
#include <cmath>

#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

double distance_bias(const as_tensor& bias, std::int32_t most, bool causal, std::int64_t distance,
                     std::int64_t head) {
  const std::int64_t side = causal ? bias.shape[0] : bias.shape[0] / 2, single = side / 2;
  const std::int64_t apart = causal ? std::max<std::int64_t>(0, -distance) : std::abs(distance);
  std::int64_t bucket = apart;
  if (apart >= single) {
    const double begin = std::log2(static_cast<double>(single));
    const double octaves = std::log2(static_cast<double>(apart)) - begin;
    const double each =
        (std::log2(static_cast<double>(most)) - begin) / static_cast<double>(side - single);
    bucket = std::min(side - 1, single + static_cast<std::int64_t>(octaves / each + 1e-9));
  }
  if (!causal && distance > 0) bucket += side;
  return static_cast<double>(*at<float>(bias, bucket, head));
}

double user_logit(const as_tensor& mask, const as_tensor& score, const cpu::MaskPlace& place,
                  double logit) {
  if (present(mask) && !cpu::mask_shows(mask, place)) return -kInfinity;
  return present(score) ? cpu::run_mask_code(score, place, logit) : logit;
}

}  // namespace attnscope
