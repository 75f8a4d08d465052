// compressor_state, indexer_compressor_state: saves values and gates (position bias added) of each
// token as one fp32 row.
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void compressor_state(const as_compressor_state_params& p, const as_call* call, Check& check) {
  if (p.ratio != 4 && p.ratio != 128) {
    check.fail("ratio is %d; allowed: 4, 128", p.ratio);
    return;
  }
  if (!check.tensor("ape", p.ape, AS_F32, {p.ratio, kAny}) ||
      !check.tensor("proj", p.proj, AS_F32, {kAny, 2 * p.ape.shape[1]})) {
    return;
  }
  const std::int64_t tokens = p.proj.shape[0];
  const std::int64_t width = p.ape.shape[1];
  if (!check.tensor("positions", p.positions, AS_I64, {tokens}) ||
      !check.tensor("slots", p.slots, AS_I64, {tokens}) ||
      !check.cache("state", p.state, AS_RECORD_STATE, 2 * width) ||
      !check.slots("slots", p.slots, p.state)) {
    return;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t position = *at<std::int64_t>(p.positions, t);
    if (*at<std::int64_t>(p.slots, t) >= 0 && position < 0) {
      check.fail("positions[%lld] is %lld; positions start at 0", static_cast<long long>(t),
                 static_cast<long long>(position));
      return;
    }
  }
  parallel_for(call, tokens, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t slot = *at<std::int64_t>(p.slots, t);
      if (slot < 0) continue;
      auto* row = reinterpret_cast<float*>(as_cache_row(&p.state, slot).payload);
      const float* proj = at<float>(p.proj, t);
      const float* ape = at<float>(p.ape, *at<std::int64_t>(p.positions, t) % p.ratio);
      for (std::int64_t k = 0; k < width; ++k) row[k] = proj[k];
      for (std::int64_t k = 0; k < width; ++k) row[width + k] = proj[width + k] + ape[k];
    }
  });
}

}  // namespace attnscope::cpu
