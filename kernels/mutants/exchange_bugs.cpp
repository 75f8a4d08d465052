// Rows that do not come where they belong between host memory and the pool on the device.
#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/mutants/bugs.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Exchange = as_exchange_rows_params;

constexpr as_op_id kExchange = AS_OP_EXCHANGE_ROWS;

std::vector<std::int64_t> numbers_of(const as_tensor& slots) {
  std::vector<std::int64_t> out;
  for (std::int64_t n = 0; n < slots.shape[0]; ++n) out.push_back(*at<std::int64_t>(slots, n));
  return out;
}

// The call with other slots than it is given.
template <class Change>
std::int32_t with_slots(as_tensor Exchange::*slots, const void* params, const as_call* call,
                        as_error* error, const Change& change) {
  if (!readable<Exchange>(params)) return run_cpu(kExchange, params, call, error);
  Exchange p = *static_cast<const Exchange*>(params);
  std::vector<std::int64_t> numbers = numbers_of(p.*slots);
  change(p, numbers);
  p.*slots = make_tensor(numbers.data(), {(p.*slots).shape[0]});
  return run_cpu(kExchange, &p, call, error);
}

// The row that gave up its place stays there: the last one that comes in does not.
std::int32_t stale_row(const void* params, const as_call* call, as_error* error) {
  return with_slots(&Exchange::pool_to, params, call, error,
                    [](const Exchange&, std::vector<std::int64_t>& to) { to.back() = -1; });
}

// Two rows that come in change places.
std::int32_t miss_misplaced(const void* params, const as_call* call, as_error* error) {
  return with_slots(&Exchange::pool_to, params, call, error,
                    [](const Exchange&, std::vector<std::int64_t>& to) {
                      if (to.size() > 1) std::swap(to[to.size() - 2], to.back());
                    });
}

// The last new row of the step stays in the pool alone.
std::int32_t write_back_lost(const void* params, const as_call* call, as_error* error) {
  return with_slots(&Exchange::pages_to, params, call, error,
                    [](const Exchange&, std::vector<std::int64_t>& to) {
                      for (std::size_t t = to.size(); t-- > 0;) {
                        if (to[t] < 0) continue;
                        to[t] = -1;
                        return;
                      }
                    });
}

// Of rows that come in the end stays what it was: scales of one format, RoPE dims of another.
std::int32_t end_left_behind(const void* params, const as_call* call, as_error* error) {
  if (!readable<Exchange>(params)) return run_cpu(kExchange, params, call, error);
  const auto& p = *static_cast<const Exchange*>(params);
  std::vector<std::vector<std::uint8_t>> before;
  const std::vector<std::int64_t> to = numbers_of(p.pool_to);
  const std::int64_t bytes = as_cache_row_bytes(&p.pool);
  for (const std::int64_t slot : to) {
    before.emplace_back(static_cast<std::size_t>(bytes));
    if (slot >= 0) as_row_get(&p.pool, slot, before.back().data());
  }
  constexpr std::int64_t kEnd = 8;
  return spoil_after<Exchange>(kExchange, params, call, error, [&](const Exchange& q) {
    std::vector<std::uint8_t> row(static_cast<std::size_t>(bytes));
    for (std::size_t n = 0; n < to.size(); ++n) {
      if (to[n] < 0) continue;
      as_row_get(&q.pool, to[n], row.data());
      std::copy(before[n].end() - kEnd, before[n].end(), row.end() - kEnd);
      as_row_put(&q.pool, to[n], row.data());
    }
    return std::int32_t{AS_OK};
  });
}

// What is in the pool is listed where it lies in its page.
std::int32_t reads_the_pages(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Exchange>(kExchange, params, call, error, [](const Exchange& p) {
    const std::int64_t t = p.slots.shape[0] - 1;
    if (t < 0 || p.slots.shape[1] == 0) return std::int32_t{AS_OK};
    *at<std::int32_t>(p.slots, t, 0) = *at<std::int32_t>(p.selected, t, 0);
    return std::int32_t{AS_OK};
  });
}

}  // namespace

std::vector<RareBug> exchange_bugs() {
  constexpr const char* kScenario = "ess";
  return {
      {{"mutant:stale_row",
        "The last row that is missed does not take the place of an evicted one.", kExchange,
        stale_row},
       kScenario},
      {{"mutant:miss_misplaced", "Two rows that are missed come into each other's places.",
        kExchange, miss_misplaced},
       kScenario},
      {{"mutant:write_back_lost", "The last new row of a step does not go back to its page.",
        kExchange, write_back_lost},
       kScenario},
      {{"mutant:row_end_left_behind", "The last 8 bytes of rows that come in are not copied.",
        kExchange, end_left_behind},
       kScenario},
      {{"mutant:reads_the_pages", "One row that lies in the pool is read from its page.", kExchange,
        reads_the_pages},
       kScenario},
  };
}

}  // namespace attnscope::mutants
