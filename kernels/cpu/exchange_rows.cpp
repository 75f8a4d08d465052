// exchange_rows: rows of a cache between their pages in host memory and the device's pool.
#include "kernels/cpu/offload_check.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

constexpr std::int64_t kRowsOfThread = 64;

bool check_rows(const char* name, const as_cache& c, const as_cache& like, Check& check) {
  const bool paged = c.addressing == AS_PAGED;
  if (c.record != like.record || c.width != like.width) {
    return check.fail("%s holds record %d of width %d, fresh %d of %d; all four are one cache",
                      name, c.record, c.width, like.record, like.width);
  }
  if (paged && c.rows_per_block <= 0) {
    return check.fail("%s has %d rows per block; a paged cache has at least 1", name,
                      c.rows_per_block);
  }
  if (!check.tensor(name, c.data, AS_U8, {kAny, kAny})) return false;
  const std::int64_t needed = as_cache_row_bytes(&c) * (paged ? c.rows_per_block : 1);
  if (c.data.shape[0] == 0 || c.data.shape[1] >= needed) return true;
  return check.fail("%s has pages or rows of %lld bytes; its record needs %lld", name,
                    static_cast<long long>(c.data.shape[1]), static_cast<long long>(needed));
}

bool check_places(const as_exchange_rows_params& p, Check& check) {
  const std::int64_t rows = cache_rows(p.pool);
  for (std::int64_t t = 0; t < p.places.shape[0]; ++t) {
    for (std::int64_t k = 0; k < p.places.shape[1]; ++k) {
      const std::int32_t place = *at<std::int32_t>(p.places, t, k);
      if (place >= -1 && place < rows) continue;
      return check.fail("places[%lld,%lld] is slot %d; the cache has rows 0 to %lld (-1 = none)",
                        static_cast<long long>(t), static_cast<long long>(k), place,
                        static_cast<long long>(rows - 1));
    }
  }
  return true;
}

void move_rows(const as_cache& from, const as_tensor& sources, const as_cache& to,
               const as_tensor& targets, const as_call* call) {
  parallel_for(call, sources.shape[0], kRowsOfThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t source = *at<std::int64_t>(sources, n);
      const std::int64_t target = *at<std::int64_t>(targets, n);
      if (source >= 0 && target >= 0) as_row_copy(&from, source, &to, target);
    }
  });
}

}  // namespace

bool check_params(const as_exchange_rows_params& p, bool values, Check& check) {
  if (!check.tensor("selected", p.selected, AS_I32, {kAny, kAny})) return false;
  const std::int64_t tokens = p.selected.shape[0], width = p.selected.shape[1];
  if (!check.tensor("places", p.places, AS_I32, {tokens, width}) ||
      !check.tensor("slots", p.slots, AS_I32, {tokens, width}) ||
      !check.tensor("fresh_from", p.fresh_from, AS_I64, {tokens}) ||
      !check.tensor("pages_to", p.pages_to, AS_I64, {tokens}) ||
      !check.tensor("missed_from", p.missed_from, AS_I64, {kAny}) ||
      !check.tensor("pool_to", p.pool_to, AS_I64, {p.missed_from.shape[0]})) {
    return false;
  }
  if (as_row_format_of(p.fresh.record) == nullptr) {
    return check.fail("fresh holds record %d, which is none", p.fresh.record);
  }
  return check_rows("fresh", p.fresh, p.fresh, check) &&
         check_rows("pages", p.pages, p.fresh, check) &&
         check_rows("missed", p.missed, p.fresh, check) &&
         check_rows("pool", p.pool, p.fresh, check) &&
         (!values || (check.slots("fresh_from", p.fresh_from, p.fresh) &&
                      check.slots("pages_to", p.pages_to, p.pages) &&
                      check.slots("missed_from", p.missed_from, p.missed) &&
                      check.slots("pool_to", p.pool_to, p.pool) && check_places(p, check)));
}

void exchange_rows(const as_exchange_rows_params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  move_rows(p.fresh, p.fresh_from, p.pages, p.pages_to, call);
  move_rows(p.missed, p.missed_from, p.pool, p.pool_to, call);
  for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
    for (std::int64_t k = 0; k < p.slots.shape[1]; ++k) {
      const std::int32_t place = *at<std::int32_t>(p.places, t, k);
      *at<std::int32_t>(p.slots, t, k) = place >= 0 ? place : *at<std::int32_t>(p.selected, t, k);
    }
  }
}

}  // namespace attnscope::cpu
