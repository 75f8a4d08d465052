// draft_norm: what a draft layer begins with, norms of the hidden state and of the next token's
// embedding.
#include <algorithm>

#include "kernels/cpu/draft_check.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

bool check_params(const as_draft_norm_params& p, bool values, Check& check) {
  if (!check.tensor("h_weight", p.h_weight, AS_BF16, {kAny})) return false;
  const std::int64_t width = p.h_weight.shape[0];
  if (!check.tensor("e_weight", p.e_weight, AS_BF16, {width}) ||
      !check.tensor("embedding", p.embedding, AS_BF16, {kAny, width}) ||
      !check.tensor("hidden", p.hidden, AS_BF16, {kAny, width})) {
    return false;
  }
  const std::int64_t tokens = p.hidden.shape[0];
  if (!check.tensor("tokens", p.tokens, AS_I32, {tokens}) ||
      !check.tensor("positions", p.positions, AS_I64, {tokens}) ||
      !check.tensor("h", p.h, AS_BF16, {tokens, width}) ||
      !check.tensor("e", p.e, AS_BF16, {tokens, width})) {
    return false;
  }
  for (std::int64_t t = 0; values && t < tokens; ++t) {
    const std::int32_t token = *at<std::int32_t>(p.tokens, t);
    if (token < p.embedding.shape[0]) continue;
    return check.fail("the token behind token %lld is %d; the embedding has rows 0 to %lld",
                      static_cast<long long>(t), token,
                      static_cast<long long>(p.embedding.shape[0] - 1));
  }
  return true;
}

void draft_norm(const as_draft_norm_params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  using Bits = std::uint16_t;
  const simd::Kernels& simd = simd::kernels();
  const std::int64_t width = p.h_weight.shape[0];
  const auto norm = [&](const Bits* x, const as_tensor& weight, Bits* y) {
    const float factor = inverse_rms(simd.sum_squares_bf16(x, width), width, p.eps);
    simd.scale_bf16(x, factor, at<Bits>(weight), width, y);
  };
  parallel_for(call, p.hidden.shape[0], 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      norm(at<Bits>(p.hidden, t), p.h_weight, at<Bits>(p.h, t));
      const std::int32_t token = *at<std::int32_t>(p.tokens, t);
      if (token < 0 || *at<std::int64_t>(p.positions, t) == 0) {
        std::fill_n(at<Bits>(p.e, t), width, Bits{0});
      } else {
        norm(at<Bits>(p.embedding, token), p.e_weight, at<Bits>(p.e, t));
      }
    }
  });
}

}  // namespace attnscope::cpu
