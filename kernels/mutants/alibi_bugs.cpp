// Wrong bias by distance in dense attention.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/mutants/bugs.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Biased = as_paged_attention_params;

// The op with slopes that change(slopes) has changed, where it has any.
template <class Change>
std::int32_t with_slopes(const void* params, const as_call* call, as_error* error,
                         const Change& change) {
  constexpr as_op_id kOp = AS_OP_PAGED_ATTENTION;
  return spoil_after<Biased>(kOp, params, call, error, [&](Biased p) -> std::int32_t {
    if (!present(p.alibi_slopes)) return AS_OK;
    std::vector<float> slopes;
    const std::int64_t heads = p.alibi_slopes.shape[0];
    for (std::int64_t h = 0; h < heads; ++h) slopes.push_back(*at<float>(p.alibi_slopes, h));
    change(p, slopes);
    p.alibi_slopes = make_tensor(slopes.data(), {heads});
    return run_cpu(kOp, &p, call, error);
  });
}

std::int32_t alibi_missing(const void* params, const as_call* call, as_error* error) {
  return with_slopes(params, call, error, [](const Biased&, std::vector<float>& slopes) {
    std::fill(slopes.begin(), slopes.end(), 0.0f);
  });
}

std::int32_t alibi_slope_of_next_head(const void* params, const as_call* call, as_error* error) {
  return with_slopes(params, call, error, [](const Biased&, std::vector<float>& slopes) {
    std::rotate(slopes.begin(), slopes.begin() + 1, slopes.end());
  });
}

std::int32_t alibi_sign(const void* params, const as_call* call, as_error* error) {
  return with_slopes(params, call, error, [](const Biased&, std::vector<float>& slopes) {
    for (float& slope : slopes) slope = -slope;
  });
}

// (q . k + bias) * scale
std::int32_t alibi_before_scale(const void* params, const as_call* call, as_error* error) {
  return with_slopes(params, call, error, [](const Biased& p, std::vector<float>& slopes) {
    for (float& slope : slopes) slope *= static_cast<float>(p.scale);
  });
}

// 2^(-8 (h + 1) / H) also where H is no power of two, or the model's slopes are others.
std::int32_t alibi_any_head_count(const void* params, const as_call* call, as_error* error) {
  return with_slopes(params, call, error, [](const Biased&, std::vector<float>& slopes) {
    const auto heads = static_cast<float>(slopes.size());
    for (std::size_t h = 0; h < slopes.size(); ++h) {
      slopes[h] = std::exp2(-8.0f * static_cast<float>(h + 1) / heads);
    }
  });
}

// slope * i is added in the place of -slope * (p - i): slope * p more for all rows that a token
// sees. Weights are the same, and LSE is not.
std::int32_t alibi_by_position(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Biased>(
      AS_OP_PAGED_ATTENTION, params, call, error, [](const Biased& p) -> std::int32_t {
        for (std::int64_t t = 0; present(p.alibi_slopes) && t < p.lse.shape[0]; ++t) {
          const auto position = static_cast<float>(*at<std::int64_t>(p.positions, t));
          for (std::int64_t h = 0; h < p.lse.shape[1]; ++h) {
            *at<float>(p.lse, t, h) += *at<float>(p.alibi_slopes, h) * position;
          }
        }
        return AS_OK;
      });
}

}  // namespace

std::vector<Bug> alibi_bugs() {
  constexpr as_op_id kOp = AS_OP_PAGED_ATTENTION;
  return {
      {"mutant:alibi_missing", "No score has ALiBi's bias.", kOp, alibi_missing},
      {"mutant:alibi_slope_of_next_head", "A head has ALiBi's slope of the head behind it.", kOp,
       alibi_slope_of_next_head},
      {"mutant:alibi_sign", "ALiBi's bias grows with the distance.", kOp, alibi_sign},
      {"mutant:alibi_before_scale", "ALiBi's bias is scaled with the scores.", kOp,
       alibi_before_scale},
      {"mutant:alibi_any_head_count",
       "ALiBi's slopes are 2^(-8 (h + 1) / H), also where H is no power of two.", kOp,
       alibi_any_head_count},
      {"mutant:alibi_by_position",
       "ALiBi's bias counts from the first token: the same output, another LSE.", kOp,
       alibi_by_position},
  };
}

}  // namespace attnscope::mutants
