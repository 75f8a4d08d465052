// local_batch: the step cut at the borders of chunks. The first sequence of a request ends its
// first chunk, the last one ends with the request, those between are whole chunks.
#include <algorithm>

#include "kernels/cpu/local_batch_check.h"
#include "kernels/cpu/ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using I64 = std::int64_t;
using Params = as_local_batch_params;

void put(const as_tensor& t, I64 i, I64 value) {
  *at<std::int32_t>(t, i) = static_cast<std::int32_t>(value);
}

// Chunk number `chunk` of request r as sequence l.
void put_tables(const Params& p, I64 r, I64 chunk, I64 l, I64 rows) {
  const I64 per_chunk = p.local_tables.shape[2];
  for (I64 s = 0; s < p.local_tables.shape[0]; ++s) {
    for (I64 c = 0; c < per_chunk; ++c) {
      const bool held = c * p.block_size < rows;
      *at<std::int32_t>(p.local_tables, s, l, c) =
          held ? *at<std::int32_t>(p.tables, s, r, chunk * per_chunk + c) : -1;
    }
  }
}

// Sequences of request r from number l on; the number behind the last one.
I64 cut_request(const Params& p, I64 r, I64 l) {
  const I64 first = *at<std::int32_t>(p.query_start_loc, r);
  const I64 query = *at<std::int32_t>(p.query_start_loc, r + 1) - first;
  if (query == 0) return l;
  const I64 length = *at<std::int32_t>(p.seq_lens, r), computed = length - query;
  const I64 in_first = std::min<I64>(p.chunk - computed % p.chunk, query);
  const I64 sequences = 1 + (query - in_first + p.chunk - 1) / p.chunk;
  const I64 in_last_chunk = (length - 1) % p.chunk + 1;
  I64 t = first;
  for (I64 j = 0; j < sequences; ++j, ++l) {
    const bool last = j + 1 == sequences;
    const I64 rows = last ? in_last_chunk : p.chunk;
    const I64 begin = j == 0 ? computed % p.chunk : 0;
    put(p.local_query_start_loc, l, t);
    put(p.local_seq_lens, l, rows);
    put_tables(p, r, computed / p.chunk + j, l, rows);
    for (I64 position = begin; position < rows; ++position, ++t) {
      put(p.token_to_seq, t, l);
      *at<std::int64_t>(p.local_positions, t) = position;
    }
  }
  return l;
}

}  // namespace

void local_batch(const Params& p, const as_call*, Check& check) {
  if (!check_params(p, true, check)) return;
  const I64 requests = p.tables.shape[1], tokens = p.token_to_req.shape[0];
  for (I64 t = 0; t < tokens; ++t) {
    put(p.token_to_seq, t, -1);
    *at<std::int64_t>(p.local_positions, t) = 0;
  }
  I64 l = 0;
  for (I64 r = 0; r < requests; ++r) l = cut_request(p, r, l);
  const I64 computed = *at<std::int32_t>(p.query_start_loc, requests);
  for (; l < tokens; ++l) {
    put(p.local_query_start_loc, l, computed);
    put(p.local_seq_lens, l, 0);
    put_tables(p, 0, 0, l, 0);
  }
  put(p.local_query_start_loc, tokens, computed);
}

}  // namespace attnscope::cpu
