// merge_states: two partial attentions over disjoint entries as one.
#include <cmath>
#include <limits>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/helper_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Weights {
  double a, b;  // shares, 0 for an empty state
  double lse;
};

Weights weigh(double a, double b, bool base_2) {
  const auto power = [&](double x) { return base_2 ? std::exp2(x) : std::exp(x); };
  const auto log = [&](double x) { return base_2 ? std::log2(x) : std::log(x); };
  const bool no_a = std::isinf(a), no_b = std::isinf(b);
  if (no_a && no_b) return {0, 0, kInfinity};
  if (no_a) return {0, 1, b};
  if (no_b) return {1, 0, a};
  const double m = std::fmax(a, b);
  const double wa = power(a - m), wb = power(b - m);
  return {wa / (wa + wb), wb / (wa + wb), m + log(wa + wb)};
}

float load(const as_tensor& t, std::int64_t i, std::int64_t j, std::int64_t k) {
  return t.dtype == AS_F32 ? *at<float>(t, i, j, k) : bf16_to_float(*at<std::uint16_t>(t, i, j, k));
}

}  // namespace

void merge_states(const as_merge_states_params& p, const as_call* call, Check&) {
  const std::int64_t heads = p.a.shape[1];
  parallel_for(call, p.a.shape[0] * heads, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t t = item / heads, h = item % heads;
      const Weights w = weigh(static_cast<double>(*at<float>(p.lse_a, t, h)),
                              static_cast<double>(*at<float>(p.lse_b, t, h)), p.base_2 != 0);
      for (std::int64_t d = 0; d < p.a.shape[2]; ++d) {
        // An empty state's values may be anything: 0 times NaN is NaN.
        const double a = w.a != 0 ? w.a * static_cast<double>(load(p.a, t, h, d)) : 0;
        const double b = w.b != 0 ? w.b * static_cast<double>(load(p.b, t, h, d)) : 0;
        if (p.out.dtype == AS_F32) {
          *at<float>(p.out, t, h, d) = static_cast<float>(a + b);
        } else {
          *at<std::uint16_t>(p.out, t, h, d) = float_to_bf16(round_bf16(a + b));
        }
      }
      *at<float>(p.lse, t, h) = static_cast<float>(w.lse);
    }
  });
}

}  // namespace attnscope::cpu
