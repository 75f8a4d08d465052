#include "kernels/cpu/local_batch_check.h"

#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Longs = long long;

// Tokens of the requests follow one another from the first one on, padding stands behind them.
bool check_query(const as_local_batch_params& p, Check& check) {
  const std::int64_t requests = p.tables.shape[1], tokens = p.token_to_req.shape[0];
  std::int64_t token = 0;
  for (std::int64_t r = 0; r < requests; ++r) {
    const std::int64_t first = *at<std::int32_t>(p.query_start_loc, r);
    const std::int64_t end = *at<std::int32_t>(p.query_start_loc, r + 1);
    const std::int64_t length = *at<std::int32_t>(p.seq_lens, r);
    if (first != token || end < first || end > tokens) {
      return check.fail(
          "query_start_loc gives request %lld tokens %lld to %lld of %lld; requests follow one "
          "another from token 0 on",
          static_cast<Longs>(r), static_cast<Longs>(first), static_cast<Longs>(end - 1),
          static_cast<Longs>(tokens));
    }
    if (end > first && length < end - first) {
      return check.fail(
          "seq_lens[%lld] is %lld, the request has %lld tokens in the step; it counts them, too",
          static_cast<Longs>(r), static_cast<Longs>(length), static_cast<Longs>(end - first));
    }
    if (end > first && (length - 1) / p.block_size >= p.tables.shape[2]) {
      return check.fail("request %lld has %lld rows; tables has %lld columns of %d",
                        static_cast<Longs>(r), static_cast<Longs>(length),
                        static_cast<Longs>(p.tables.shape[2]), p.block_size);
    }
    for (; token < end; ++token) {
      const std::int64_t of = *at<std::int32_t>(p.token_to_req, token);
      if (of == r) continue;
      return check.fail("token_to_req[%lld] is %lld; query_start_loc gives the token to %lld",
                        static_cast<Longs>(token), static_cast<Longs>(of), static_cast<Longs>(r));
    }
  }
  for (; token < tokens; ++token) {
    const std::int64_t of = *at<std::int32_t>(p.token_to_req, token);
    if (of < 0) continue;
    return check.fail("token_to_req[%lld] is %lld; query_start_loc ends before this token",
                      static_cast<Longs>(token), static_cast<Longs>(of));
  }
  return true;
}

}  // namespace

bool check_params(const as_local_batch_params& p, bool values, Check& check) {
  if (!check.range("chunk", p.chunk, 1, INT32_MAX) ||
      !check.range("block_size", p.block_size, 1, INT32_MAX)) {
    return false;
  }
  if (p.chunk % p.block_size != 0) {
    return check.fail(
        "chunk is %d, block_size %d; a chunk has blocks of its own: choose a multiple of the block",
        p.chunk, p.block_size);
  }
  if (!check.tensor("tables", p.tables, AS_I32, {kAny, kAny, kAny}) ||
      !check.tensor("token_to_req", p.token_to_req, AS_I32, {kAny})) {
    return false;
  }
  const std::int64_t groups = p.tables.shape[0], requests = p.tables.shape[1];
  const std::int64_t tokens = p.token_to_req.shape[0], blocks = p.chunk / p.block_size;
  return check.tensor("query_start_loc", p.query_start_loc, AS_I32, {requests + 1}) &&
         check.tensor("seq_lens", p.seq_lens, AS_I32, {requests}) &&
         check.tensor("token_to_seq", p.token_to_seq, AS_I32, {tokens}) &&
         check.tensor("local_positions", p.local_positions, AS_I64, {tokens}) &&
         check.tensor("local_query_start_loc", p.local_query_start_loc, AS_I32, {tokens + 1}) &&
         check.tensor("local_seq_lens", p.local_seq_lens, AS_I32, {tokens}) &&
         check.tensor("local_tables", p.local_tables, AS_I32, {groups, tokens, blocks}) &&
         (!values || check_query(p, check));
}

}  // namespace attnscope::cpu
