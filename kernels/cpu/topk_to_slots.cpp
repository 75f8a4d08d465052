// topk_to_slots: selected entries of a request as slots of the compressed cache.
#include "kernels/cpu/ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

bool check_token(const as_topk_to_slots_params& p, std::int64_t t, Check& check) {
  const std::int64_t r = *at<std::int32_t>(p.token_to_req, t);
  if (r < 0) return true;
  for (std::int64_t k = 0; k < p.indices.shape[1]; ++k) {
    const std::int64_t entry = *at<std::int32_t>(p.indices, t, k);
    if (entry < 0) continue;
    if (!check.block("table", p.table, t, r, entry / p.rows_per_block)) return false;
    const std::int64_t id = *at<std::int32_t>(p.table, r, entry / p.rows_per_block);
    if ((id + 1) * p.rows_per_block - 1 > INT32_MAX) {
      return check.fail("token %lld: entry %lld lies in block %lld; slots must lie in 0 to %d",
                        static_cast<long long>(t), static_cast<long long>(entry),
                        static_cast<long long>(id), INT32_MAX);
    }
  }
  return true;
}

}  // namespace

void topk_to_slots(const as_topk_to_slots_params& p, const as_call*, Check& check) {
  if (!check.range("rows_per_block", p.rows_per_block, 1, INT32_MAX) ||
      !check.tensor("indices", p.indices, AS_I32, {kAny, kAny})) {
    return;
  }
  const std::int64_t tokens = p.indices.shape[0];
  const std::int64_t width = p.indices.shape[1];
  if (!check.tensor("table", p.table, AS_I32, {kAny, kAny}) ||
      !check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("slots", p.slots, AS_I32, {tokens, width}) ||
      !check.tensor("lens", p.lens, AS_I32, {tokens}) ||
      !check.requests(p.token_to_req, p.table.shape[0])) {
    return;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (!check_token(p, t, check)) return;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t r = *at<std::int32_t>(p.token_to_req, t);
    std::int32_t valid = 0;
    for (std::int64_t k = 0; k < width; ++k) {
      const std::int64_t entry = *at<std::int32_t>(p.indices, t, k);
      std::int32_t& slot = *at<std::int32_t>(p.slots, t, k);
      slot = -1;
      if (entry < 0 || r < 0) continue;
      const std::int64_t id = *at<std::int32_t>(p.table, r, entry / p.rows_per_block);
      slot = static_cast<std::int32_t>(id * p.rows_per_block + entry % p.rows_per_block);
      ++valid;
    }
    *at<std::int32_t>(p.lens, t) = valid;
  }
}

}  // namespace attnscope::cpu
