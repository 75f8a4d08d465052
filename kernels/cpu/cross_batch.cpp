// cross_batch: tokens of the source and of the decoder apart, each with its slots.
#include "kernels/cpu/cross_batch_check.h"
#include "kernels/cpu/ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void cross_batch(const as_cross_batch_params& p, const as_call*, Check& check) {
  if (!check_params(p, true, check)) return;
  for (std::int64_t t = 0; t < p.positions.shape[0]; ++t) {
    const std::int32_t request = *at<std::int32_t>(p.token_to_req, t);
    const bool source = request >= 0 && *at<std::int64_t>(p.positions, t) <
                                            *at<std::int32_t>(p.source_lens, request);
    const bool target = request >= 0 && !source;
    const std::int64_t slot = *at<std::int64_t>(p.slots, p.group, t);
    *at<std::int32_t>(p.source_to_req, t) = source ? request : -1;
    *at<std::int32_t>(p.target_to_req, t) = target ? request : -1;
    *at<std::int64_t>(p.source_slots, t) = source ? slot : -1;
    *at<std::int64_t>(p.target_slots, t) = target ? slot : -1;
  }
}

bool check_params(const as_cross_batch_params& p, bool values, Check& check) {
  if (!check.tensor("positions", p.positions, AS_I64, {kAny}) ||
      !check.tensor("source_lens", p.source_lens, AS_I32, {kAny}) ||
      !check.tensor("slots", p.slots, AS_I64, {kAny, p.positions.shape[0]})) {
    return false;
  }
  const std::int64_t tokens = p.positions.shape[0], requests = p.source_lens.shape[0];
  if (!check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("source_to_req", p.source_to_req, AS_I32, {tokens}) ||
      !check.tensor("target_to_req", p.target_to_req, AS_I32, {tokens}) ||
      !check.tensor("source_slots", p.source_slots, AS_I64, {tokens}) ||
      !check.tensor("target_slots", p.target_slots, AS_I64, {tokens})) {
    return false;
  }
  if (p.group < 0 || p.group >= p.slots.shape[0]) {
    return check.fail("group is %d; slots has rows 0 to %lld", p.group,
                      static_cast<long long>(p.slots.shape[0]) - 1);
  }
  for (std::int64_t t = 0; values && t < tokens; ++t) {
    const std::int64_t request = *at<std::int32_t>(p.token_to_req, t);
    if (request < requests) continue;
    return check.fail(
        "token_to_req[%lld] is %lld; source_lens has requests 0 to %lld (negative = padding)",
        static_cast<long long>(t), static_cast<long long>(request),
        static_cast<long long>(requests) - 1);
  }
  return true;
}

}  // namespace attnscope::cpu
