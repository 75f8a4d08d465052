// Wrong plans of attention, and attention that follows a right one wrongly.
#include <algorithm>
#include <vector>

#include "kernels/mutants/bugs.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Plan = as_attention_plan_params;
using Attention = as_sparse_attention_params;

constexpr as_op_id kPlan = AS_OP_ATTENTION_PLAN;
constexpr as_op_id kSparse = AS_OP_SPARSE_ATTENTION;

struct Lists {
  std::vector<std::int32_t> rows, splits;
};

Lists lists_of(const Attention& p) {
  Lists lists;
  for (std::int64_t t = 0; t < p.plan_rows.shape[0]; ++t) {
    lists.rows.insert(lists.rows.end(), at<std::int32_t>(p.plan_rows, t),
                      at<std::int32_t>(p.plan_rows, t) + 2);
  }
  for (std::int64_t n = 0; n < p.plan_splits.shape[0]; ++n) {
    lists.splits.insert(lists.splits.end(), at<std::int32_t>(p.plan_splits, n),
                        at<std::int32_t>(p.plan_splits, n) + AS_PLAN_COLUMNS);
  }
  return lists;
}

std::int32_t attend_by(Lists& lists, Attention p, const as_call* call, as_error* error) {
  p.plan_rows = make_tensor(lists.rows.data(), {p.plan_rows.shape[0], 2});
  p.plan_splits = make_tensor(lists.splits.data(), {p.plan_splits.shape[0], AS_PLAN_COLUMNS});
  return run_cpu(kSparse, &p, call, error);
}

// The first split of a token ends a tile early, the next one begins where it should.
std::int32_t plan_tile_lost(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Plan>(kPlan, params, call, error, [](const Plan& p) {
    for (std::int64_t y = 0; y < AS_PLAN_TYPES; ++y) {
      for (std::int64_t t = 0; t < p.rows.shape[1]; ++t) {
        const std::int32_t* row = at<std::int32_t>(p.rows, y, t);
        if (row[1] > 1) --*at<std::int32_t>(p.splits, y, row[0], AS_PLAN_END);
      }
    }
    return std::int32_t{AS_OK};
  });
}

// A border between two splits of a token lies a tile early, where the first one has two or more.
std::int32_t plan_border_early(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Plan>(kPlan, params, call, error, [](const Plan& p) {
    for (std::int64_t y = 0; y < AS_PLAN_TYPES; ++y) {
      for (std::int64_t n = 1; n < *at<std::int32_t>(p.counts, y, 0); ++n) {
        std::int32_t* before = at<std::int32_t>(p.splits, y, n - 1);
        std::int32_t* split = at<std::int32_t>(p.splits, y, n);
        if (before[AS_PLAN_ROW] != split[AS_PLAN_ROW]) continue;
        if (before[AS_PLAN_END] - before[AS_PLAN_BEGIN] < 2) continue;
        --before[AS_PLAN_END];
        --split[AS_PLAN_BEGIN];
      }
    }
    return std::int32_t{AS_OK};
  });
}

// Padded with a token of no length, as a recorded graph is: FlashMLA's planner counts it.
std::int32_t plan_counts_padding(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](Plan p) -> std::int32_t {
    const std::int64_t tokens = p.window_lens.shape[0], padded = tokens + 8;
    const auto lengths = [&](const as_tensor& lens, std::int32_t rest) {
      std::vector<std::int32_t> all(static_cast<std::size_t>(padded), rest);
      if (present(lens)) std::copy_n(at<std::int32_t>(lens), tokens, all.begin());
      return all;
    };
    const std::vector<std::int32_t> window = lengths(p.window_lens, 1);
    const std::vector<std::int32_t> c4 = lengths(p.c4_lens, 0), c128 = lengths(p.c128_lens, 0);
    std::vector<std::int32_t> rows(static_cast<std::size_t>(AS_PLAN_TYPES * padded * 2));
    std::vector<std::int32_t> splits(
        static_cast<std::size_t>(AS_PLAN_TYPES * (padded + p.multiprocessors) * AS_PLAN_COLUMNS));
    std::vector<std::int32_t> counts(std::size_t{AS_PLAN_TYPES} * 2);
    Plan wider = p;
    wider.window_lens = make_tensor(window.data(), {padded});
    if (present(p.c4_lens)) wider.c4_lens = make_tensor(c4.data(), {padded});
    if (present(p.c128_lens)) wider.c128_lens = make_tensor(c128.data(), {padded});
    wider.rows = make_tensor(rows.data(), {AS_PLAN_TYPES, padded, 2});
    wider.splits =
        make_tensor(splits.data(), {AS_PLAN_TYPES, padded + p.multiprocessors, AS_PLAN_COLUMNS});
    wider.counts = make_tensor(counts.data(), {AS_PLAN_TYPES, 2});
    const std::int32_t status = run_cpu(kPlan, &wider, call, error);
    for (std::int64_t y = 0; status == AS_OK && y < AS_PLAN_TYPES; ++y) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        std::copy_n(at<std::int32_t>(wider.rows, y, t), 2, at<std::int32_t>(p.rows, y, t));
      }
      for (std::int64_t n = 0; n < p.splits.shape[1]; ++n) {
        const std::int32_t* from = at<std::int32_t>(wider.splits, y, n);
        std::int32_t* to = at<std::int32_t>(p.splits, y, n);
        if (from[AS_PLAN_ROW] < tokens) {
          std::copy_n(from, AS_PLAN_COLUMNS, to);
        } else {
          std::fill_n(to, AS_PLAN_COLUMNS, -1);
        }
      }
    }
    return status;
  };
  return spoil_after<Plan>(kPlan, params, call, error, spoil);
}

std::int32_t split_not_combined(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Attention>(kSparse, params, call, error, [&](const Attention& p) {
    if (!present(p.plan_rows)) return std::int32_t{AS_OK};
    Lists lists = lists_of(p);
    for (std::size_t t = 0; t < lists.rows.size(); t += 2) {
      const std::int32_t first = lists.rows[t];
      std::int32_t& count = lists.rows[t + 1];
      if (count == 2) {  // what is left is no part of anything
        lists.splits[static_cast<std::size_t>(first) * AS_PLAN_COLUMNS + AS_PLAN_PLACE] = -1;
      }
      if (count > 1) --count;
    }
    return attend_by(lists, p, call, error);
  });
}

// Each token is given the splits of the one before it.
std::int32_t splits_of_neighbour(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Attention>(kSparse, params, call, error, [&](const Attention& p) {
    if (!present(p.plan_rows)) return std::int32_t{AS_OK};
    Lists lists = lists_of(p);
    std::rotate(lists.rows.rbegin(), lists.rows.rbegin() + 2, lists.rows.rend());
    for (std::size_t t = 0; t < lists.rows.size(); t += 2) {
      for (std::int32_t n = 0; n < lists.rows[t + 1]; ++n) {
        const auto at_split = static_cast<std::size_t>(lists.rows[t] + n) * AS_PLAN_COLUMNS;
        lists.splits[at_split + AS_PLAN_ROW] = static_cast<std::int32_t>(t / 2);
      }
    }
    return attend_by(lists, p, call, error);
  });
}

}  // namespace

std::vector<RareBug> plan_bugs() {
  constexpr const char* kScenario = "attention_plan";
  return {
      {{"mutant:plan_tile_lost", "The first of a token's splits ends a tile early.", kPlan,
        plan_tile_lost},
       kScenario},
      {{"mutant:plan_border_early", "Borders between the splits of a token lie a tile early.",
        kPlan, plan_border_early},
       kScenario},
      {{"mutant:plan_counts_padding", "Tokens that only fill up the batch take part in the plan.",
        kPlan, plan_counts_padding},
       kScenario},
      {{"mutant:split_not_combined", "The last of a token's splits is left out of the sum.",
        kSparse, split_not_combined},
       kScenario},
      {{"mutant:splits_of_neighbour", "A token is given the splits of the token before it.",
        kSparse, splits_of_neighbour},
       kScenario},
  };
}

}  // namespace attnscope::mutants
