// swa_index: the slots of each token's sliding window, oldest first.
#include <algorithm>

#include "kernels/cpu/ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

// Position of token t, derived from the request's length; -1 for padding.
std::int64_t position_of(const as_swa_index_params& p, std::int64_t t) {
  const std::int64_t r = *at<std::int32_t>(p.token_to_req, t);
  if (r < 0) return -1;
  const std::int64_t first = *at<std::int32_t>(p.query_start_loc, r);
  const std::int64_t query_len = *at<std::int32_t>(p.query_start_loc, r + 1) - first;
  return *at<std::int32_t>(p.seq_lens, r) - query_len + (t - first);
}

bool check_token(const as_swa_index_params& p, std::int64_t t, Check& check) {
  const std::int64_t r = *at<std::int32_t>(p.token_to_req, t);
  if (r < 0) return true;
  const std::int64_t first = *at<std::int32_t>(p.query_start_loc, r);
  const std::int64_t end = *at<std::int32_t>(p.query_start_loc, r + 1);
  const std::int64_t position = position_of(p, t);
  if (t < first || t >= end || position < 0) {
    return check.fail(
        "token %lld of request %lld: query_start_loc gives tokens %lld to %lld, position "
        "%lld; the token must lie inside and its position must not be negative",
        static_cast<long long>(t), static_cast<long long>(r), static_cast<long long>(first),
        static_cast<long long>(end - 1), static_cast<long long>(position));
  }
  const std::int64_t column = position / p.block_size;
  if (column >= p.tables.shape[2]) {
    return check.fail("token %lld of request %lld needs column %lld of tables, which has %lld",
                      static_cast<long long>(t), static_cast<long long>(r),
                      static_cast<long long>(column), static_cast<long long>(p.tables.shape[2]));
  }
  const std::int64_t oldest = std::max<std::int64_t>(position - p.window + 1, 0) / p.block_size;
  for (std::int64_t s = 0; s < p.tables.shape[0]; ++s) {
    for (std::int64_t c = oldest; c <= column; ++c) {
      const std::int64_t id = *at<std::int32_t>(p.tables, s, r, c);
      if (id < 0 || (id + 1) * p.block_size - 1 > INT32_MAX) {
        return check.fail("tables[%lld,%lld,%lld] is block %lld; slots must lie in 0 to %d",
                          static_cast<long long>(s), static_cast<long long>(r),
                          static_cast<long long>(c), static_cast<long long>(id), INT32_MAX);
      }
    }
  }
  return true;
}

}  // namespace

void swa_index(const as_swa_index_params& p, const as_call*, Check& check) {
  if (!check.range("block_size", p.block_size, 1, INT32_MAX) ||
      !check.range("window", p.window, 1, INT32_MAX) ||
      !check.tensor("tables", p.tables, AS_I32, {kAny, kAny, kAny}) ||
      !check.tensor("token_to_req", p.token_to_req, AS_I32, {kAny})) {
    return;
  }
  const std::int64_t groups = p.tables.shape[0];
  const std::int64_t requests = p.tables.shape[1];
  const std::int64_t tokens = p.token_to_req.shape[0];
  if (!check.tensor("query_start_loc", p.query_start_loc, AS_I32, {requests + 1}) ||
      !check.tensor("seq_lens", p.seq_lens, AS_I32, {requests}) ||
      !check.tensor("indices", p.indices, AS_I32, {groups, tokens, p.window}) ||
      !check.tensor("lens", p.lens, AS_I32, {tokens}) ||
      !check.requests(p.token_to_req, requests)) {
    return;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (!check_token(p, t, check)) return;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t r = *at<std::int32_t>(p.token_to_req, t);
    const std::int64_t position = position_of(p, t);
    const std::int64_t start = std::max<std::int64_t>(position - p.window + 1, 0);
    const std::int64_t len = position + 1 - start;
    *at<std::int32_t>(p.lens, t) = static_cast<std::int32_t>(len);
    for (std::int64_t s = 0; s < groups; ++s) {
      std::int32_t* out = at<std::int32_t>(p.indices, s, t);
      for (std::int64_t k = 0; k < p.window; ++k) {
        if (k >= len) {
          out[k] = -1;
          continue;
        }
        const std::int64_t token = start + k;
        const std::int64_t id = *at<std::int32_t>(p.tables, s, r, token / p.block_size);
        out[k] = static_cast<std::int32_t>(id * p.block_size + token % p.block_size);
      }
    }
  }
}

}  // namespace attnscope::cpu
