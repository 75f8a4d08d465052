// c128_index: the slots of all C128A entries that each token sees.
#include "kernels/cpu/ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

std::int64_t visible_entries(const as_c128_index_params& p, std::int64_t t) {
  if (*at<std::int32_t>(p.token_to_req, t) < 0) return 0;
  return (*at<std::int64_t>(p.positions, t) + 1) / p.ratio;
}

bool check_token(const as_c128_index_params& p, std::int64_t t, Check& check) {
  const std::int64_t r = *at<std::int32_t>(p.token_to_req, t);
  if (r < 0) return true;
  const std::int64_t position = *at<std::int64_t>(p.positions, t);
  const std::int64_t n = visible_entries(p, t);
  if (position < 0 || n > p.indices.shape[1]) {
    return check.fail(
        "token %lld at position %lld sees %lld entries; a row of indices holds 0 to "
        "%lld (see as_c128_index_width)",
        static_cast<long long>(t), static_cast<long long>(position), static_cast<long long>(n),
        static_cast<long long>(p.indices.shape[1]));
  }
  for (std::int64_t column = 0; column * p.rows_per_block < n; ++column) {
    if (!check.block("table", p.table, t, r, column)) return false;
    const std::int64_t id = *at<std::int32_t>(p.table, r, column);
    if ((id + 1) * p.rows_per_block - 1 > INT32_MAX) {
      return check.fail("table[%lld,%lld] is block %lld; slots must lie in 0 to %d",
                        static_cast<long long>(r), static_cast<long long>(column),
                        static_cast<long long>(id), INT32_MAX);
    }
  }
  return true;
}

}  // namespace

void c128_index(const as_c128_index_params& p, const as_call*, Check& check) {
  if (!check.range("ratio", p.ratio, 1, INT32_MAX) ||
      !check.range("rows_per_block", p.rows_per_block, 1, INT32_MAX) ||
      !check.tensor("table", p.table, AS_I32, {kAny, kAny}) ||
      !check.tensor("positions", p.positions, AS_I64, {kAny})) {
    return;
  }
  const std::int64_t tokens = p.positions.shape[0];
  if (!check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("indices", p.indices, AS_I32, {tokens, kAny}) ||
      !check.tensor("lens", p.lens, AS_I32, {tokens}) ||
      !check.requests(p.token_to_req, p.table.shape[0])) {
    return;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (!check_token(p, t, check)) return;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t r = *at<std::int32_t>(p.token_to_req, t);
    const std::int64_t n = visible_entries(p, t);
    std::int32_t* out = at<std::int32_t>(p.indices, t);
    for (std::int64_t c = 0; c < p.indices.shape[1]; ++c) {
      out[c] = -1;
      if (c >= n) continue;
      const std::int64_t id = *at<std::int32_t>(p.table, r, c / p.rows_per_block);
      out[c] = static_cast<std::int32_t>(id * p.rows_per_block + c % p.rows_per_block);
    }
    *at<std::int32_t>(p.lens, t) = static_cast<std::int32_t>(n);
  }
}

}  // namespace attnscope::cpu
