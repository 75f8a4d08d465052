#include "kernels/cpu/attention_plan_check.h"

#include <algorithm>

#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using I64 = std::int64_t;
using Longs = long long;

constexpr I64 kMostMultiprocessors = 4096;

I64 list_tiles(const as_tensor& indices) {
  return present(indices) ? (indices.shape[1] + AS_PLAN_TILE - 1) / AS_PLAN_TILE : 0;
}

bool check_split(const as_sparse_attention_params& p, I64 t, I64 n, I64 count, Check& check) {
  const std::int32_t* split = at<std::int32_t>(p.plan_splits, n);
  const I64 places = 2 * (p.plan_splits.shape[0] - p.q.shape[0]);
  if (split[AS_PLAN_ROW] != t) {
    return check.fail("plan_splits[%lld] is of token %d, plan_rows gives it to token %lld",
                      static_cast<Longs>(n), split[AS_PLAN_ROW], static_cast<Longs>(t));
  }
  const I64 tiles = std::max<I64>(1, list_tiles(p.indices)) + list_tiles(p.extra_indices);
  if (split[AS_PLAN_BEGIN] < 0 || split[AS_PLAN_END] < split[AS_PLAN_BEGIN] ||
      split[AS_PLAN_END] > tiles) {
    return check.fail(
        "plan_splits[%lld] begins at tile %d and ends before tile %d; the lists have tiles 0 to "
        "%lld",
        static_cast<Longs>(n), split[AS_PLAN_BEGIN], split[AS_PLAN_END],
        static_cast<Longs>(tiles - 1));
  }
  if ((split[AS_PLAN_PLACE] >= 0) != (count > 1) || split[AS_PLAN_PLACE] >= places) {
    return check.fail(
        "plan_splits[%lld] has place %d, its token has %lld splits; allowed: -1 for the only one, "
        "else 0 to %lld",
        static_cast<Longs>(n), split[AS_PLAN_PLACE], static_cast<Longs>(count),
        static_cast<Longs>(places - 1));
  }
  return true;
}

}  // namespace

bool check_params(const as_attention_plan_params& p, bool, Check& check) {
  if (!check.range("rule", p.rule, AS_PLAN_OWN, AS_PLAN_FLASHMLA) ||
      !check.range("top_k", p.top_k, 0, INT32_MAX) ||
      !check.range("heads", p.heads, 1, INT32_MAX) ||
      !check.range("multiprocessors", p.multiprocessors, 1, kMostMultiprocessors) ||
      !check.tensor("window_lens", p.window_lens, AS_I32, {kAny})) {
    return false;
  }
  const I64 tokens = p.window_lens.shape[0];
  return check.optional("c4_lens", p.c4_lens, AS_I32, {tokens}) &&
         check.optional("c128_lens", p.c128_lens, AS_I32, {tokens}) &&
         check.tensor("rows", p.rows, AS_I32, {AS_PLAN_TYPES, tokens, 2}) &&
         check.tensor("splits", p.splits, AS_I32,
                      {AS_PLAN_TYPES, tokens + p.multiprocessors, AS_PLAN_COLUMNS}) &&
         check.tensor("counts", p.counts, AS_I32, {AS_PLAN_TYPES, 2});
}

bool check_plan(const as_sparse_attention_params& p, bool values, Check& check) {
  if (!present(p.plan_rows) && !present(p.plan_splits)) return true;
  if (present(p.prefill)) {
    return check.fail(
        "there is a plan and prefill; a plan is of lists in the caches, not of "
        "gathered rows");
  }
  const I64 tokens = p.q.shape[0];
  if (!check.tensor("plan_rows", p.plan_rows, AS_I32, {tokens, 2}) ||
      !check.tensor("plan_splits", p.plan_splits, AS_I32, {kAny, AS_PLAN_COLUMNS})) {
    return false;
  }
  const I64 splits = p.plan_splits.shape[0];
  if (!check.range("rows of plan_splits", splits, tokens, INT32_MAX)) return false;
  for (I64 t = 0; values && t < tokens; ++t) {
    const I64 first = *at<std::int32_t>(p.plan_rows, t, 0);
    const I64 count = *at<std::int32_t>(p.plan_rows, t, 1);
    if (first < 0 || count < 0 || first + count > splits) {
      return check.fail("plan_rows gives token %lld splits %lld to %lld of %lld",
                        static_cast<Longs>(t), static_cast<Longs>(first),
                        static_cast<Longs>(first + count - 1), static_cast<Longs>(splits));
    }
    for (I64 n = first; n < first + count; ++n) {
      if (!check_split(p, t, n, count, check)) return false;
    }
  }
  return true;
}

}  // namespace attnscope::cpu
