// sample: greedy choice, the lowest id of equal logits.
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void sample(const as_sample_params& p, const as_call* call, Check& check) {
  if (!check.tensor("logits", p.logits, AS_F32, {kAny, kAny}) ||
      !check.tensor("tokens", p.tokens, AS_I32, {p.logits.shape[0]}) ||
      !check.range("logits columns", p.logits.shape[1], 0, INT32_MAX)) {
    return;
  }
  parallel_for(call, p.logits.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const float* logits = at<float>(p.logits, n);
      std::int64_t best = -1;
      for (std::int64_t v = 0; v < p.logits.shape[1]; ++v) {
        if (logits[v] != logits[v]) continue;
        if (best < 0 || logits[v] > logits[best]) best = v;
      }
      *at<std::int32_t>(p.tokens, n) = static_cast<std::int32_t>(best);
    }
  });
}

}  // namespace attnscope::cpu
