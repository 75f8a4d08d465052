// Dense attention in two passes, wrongly cut or wrongly merged.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/paged_forms.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Formed = as_paged_attention_params;
constexpr as_op_id kFormed = AS_OP_PAGED_ATTENTION;

// The states of all tokens and heads over the rows on one side of the cut.
struct Side {
  std::vector<bf16_t> o;
  std::vector<float> lse;
};

// Both sides, each by a call of one pass, and where they were cut.
class TwoPasses {
 public:
  TwoPasses(const Formed& p, const as_call* call, as_error* error)
      : p_(p), call_(call), error_(error), cuts_(cpu::context_cuts(p)) {}

  bool cuts_any() const {
    return std::ranges::any_of(cuts_.rows, [](std::int64_t row) { return row > 0; });
  }
  bool cut_of(std::int64_t token) const {
    const std::int32_t request = *at<std::int32_t>(p_.token_to_req, token);
    return request >= 0 && cuts_.rows[static_cast<std::size_t>(request)] > 0;
  }
  // shift: rows that the cut of this side lies further on.
  std::int32_t before(Side* side, std::int64_t shift = 0) {
    std::vector<std::int32_t> lens;
    for (std::int64_t r = 0; r < p_.table.shape[0]; ++r) {
      lens.push_back(static_cast<std::int32_t>(cut(r, shift)));
    }
    Formed p = alone(side);
    p.seq_lens = make_tensor(lens.data(), {p.table.shape[0]});
    return run_cpu(kFormed, &p, call_, error_);
  }
  std::int32_t behind(Side* side, std::int64_t shift = 0) {
    std::vector<std::int32_t> first;
    for (std::int64_t r = 0; r < p_.table.shape[0]; ++r) {
      first.push_back(static_cast<std::int32_t>(cut(r, shift)));
    }
    Formed p = alone(side);
    p.first_rows = make_tensor(first.data(), {p.table.shape[0]});
    return run_cpu(kFormed, &p, call_, error_);
  }

 private:
  std::int64_t cut(std::int64_t request, std::int64_t shift) const {
    const std::int64_t row = cuts_.rows[static_cast<std::size_t>(request)];
    return row > 0 ? std::max<std::int64_t>(0, row + shift) : 0;
  }
  Formed alone(Side* side) const {
    Formed p = p_;
    p.form = AS_PAGED_ONE_PASS;
    const auto items = static_cast<std::size_t>(p.q.shape[0] * p.q.shape[1]);
    side->o.resize(items * static_cast<std::size_t>(p.o.shape[2]));
    side->lse.resize(items);
    p.o = make_tensor(side->o.data(), {p.q.shape[0], p.q.shape[1], p.o.shape[2]});
    p.lse = make_tensor(side->lse.data(), {p.q.shape[0], p.q.shape[1]});
    return p;
  }
  const Formed& p_;
  const as_call* call_;
  as_error* error_;
  cpu::ContextCuts cuts_;
};

// Runs both passes of a call that has some, and puts what merge(p, passes, before, behind) does of
// them beside the right answer.
template <class Merge>
std::int32_t merged_otherwise(const void* params, const as_call* call, as_error* error,
                              const Merge& merge) {
  return spoil_after<Formed>(kFormed, params, call, error, [&](const Formed& p) -> std::int32_t {
    if (p.form == AS_PAGED_ONE_PASS) return AS_OK;
    TwoPasses passes(p, call, error);
    if (!passes.cuts_any()) return AS_OK;
    Side before, behind;
    if (const std::int32_t code = passes.before(&before); code != AS_OK) return code;
    if (const std::int32_t code = passes.behind(&behind); code != AS_OK) return code;
    return merge(p, passes, before, behind);
  });
}

// Every token with a cut and every head: put(t, h, place of its state).
template <class Put>
void each_cut_state(const Formed& p, const TwoPasses& passes, const Put& put) {
  for (std::int64_t t = 0; t < p.q.shape[0]; ++t) {
    if (!passes.cut_of(t)) continue;
    for (std::int64_t h = 0; h < p.q.shape[1]; ++h) {
      put(t, h, static_cast<std::size_t>(t * p.q.shape[1] + h));
    }
  }
}

// Of two states, by the weights of each; without sinks.
void put_merged(const Formed& p, std::int64_t t, std::int64_t h, const Side& a, std::size_t of_a,
                const Side& b, std::size_t of_b, bool weighed) {
  const double best = std::max(a.lse[of_a], b.lse[of_b]);
  double wa = std::exp(static_cast<double>(a.lse[of_a]) - best);
  double wb = std::exp(static_cast<double>(b.lse[of_b]) - best);
  *at<float>(p.lse, t, h) = static_cast<float>(best + std::log(wa + wb));
  if (!weighed) wa = wb = 1;
  const auto size = static_cast<std::size_t>(p.o.shape[2]);
  for (std::size_t d = 0; d < size; ++d) {
    const double x = static_cast<double>(cpu::bf16_to_float(a.o[of_a * size + d].bits));
    const double y = static_cast<double>(cpu::bf16_to_float(b.o[of_b * size + d].bits));
    at<bf16_t>(p.o, t, h, static_cast<std::int64_t>(d))->bits =
        cpu::float_to_bf16(static_cast<float>((wa * x + wb * y) / (wa + wb)));
  }
}

std::int32_t form_merged_by_halves(const void* params, const as_call* call, as_error* error) {
  return merged_otherwise(params, call, error,
                          [](const Formed& p, const TwoPasses& passes, const Side& before,
                             const Side& behind) -> std::int32_t {
                            each_cut_state(p, passes, [&](auto t, auto h, std::size_t i) {
                              put_merged(p, t, h, before, i, behind, i, false);
                            });
                            return AS_OK;
                          });
}

// The state over earlier rows is that of the next head.
std::int32_t form_merged_with_other_query(const void* params, const as_call* call,
                                          as_error* error) {
  return merged_otherwise(params, call, error,
                          [](const Formed& p, const TwoPasses& passes, const Side& before,
                             const Side& behind) -> std::int32_t {
                            const auto heads = static_cast<std::size_t>(p.q.shape[1]);
                            each_cut_state(p, passes, [&](auto t, auto h, std::size_t i) {
                              const std::size_t other = i / heads * heads + (i % heads + 1) % heads;
                              put_merged(p, t, h, before, other, behind, i, true);
                            });
                            return AS_OK;
                          });
}

std::int32_t form_cut_row_twice(const void* params, const as_call* call, as_error* error) {
  return merged_otherwise(
      params, call, error,
      [](const Formed& p, TwoPasses& passes, const Side& before, Side& behind) -> std::int32_t {
        if (const std::int32_t code = passes.behind(&behind, -1); code != AS_OK) return code;
        each_cut_state(p, passes, [&](auto t, auto h, std::size_t i) {
          put_merged(p, t, h, before, i, behind, i, true);
        });
        return AS_OK;
      });
}

std::int32_t form_cut_row_lost(const void* params, const as_call* call, as_error* error) {
  return merged_otherwise(
      params, call, error,
      [](const Formed& p, TwoPasses& passes, Side& before, const Side& behind) -> std::int32_t {
        if (const std::int32_t code = passes.before(&before, -1); code != AS_OK) return code;
        each_cut_state(p, passes, [&](auto t, auto h, std::size_t i) {
          put_merged(p, t, h, before, i, behind, i, true);
        });
        return AS_OK;
      });
}

std::int32_t form_context_lost(const void* params, const as_call* call, as_error* error) {
  return merged_otherwise(params, call, error,
                          [](const Formed& p, const TwoPasses& passes, const Side&,
                             const Side& behind) -> std::int32_t {
                            each_cut_state(p, passes, [&](auto t, auto h, std::size_t i) {
                              put_merged(p, t, h, behind, i, behind, i, true);
                              *at<float>(p.lse, t, h) = behind.lse[i];
                            });
                            return AS_OK;
                          });
}

// The merged output beside the LSE of new rows alone.
std::int32_t form_lse_of_new_rows(const void* params, const as_call* call, as_error* error) {
  return merged_otherwise(params, call, error,
                          [](const Formed& p, const TwoPasses& passes, const Side&,
                             const Side& behind) -> std::int32_t {
                            each_cut_state(p, passes, [&](auto t, auto h, std::size_t i) {
                              *at<float>(p.lse, t, h) = behind.lse[i];
                            });
                            return AS_OK;
                          });
}

// The tables of a cascade's requests, with entries that are to be another's: from(request, column).
template <class From>
std::int32_t with_tables(const void* params, const as_call* call, as_error* error,
                         const From& from) {
  return spoil_after<Formed>(kFormed, params, call, error, [&](Formed p) -> std::int32_t {
    const cpu::ContextCuts cuts = cpu::context_cuts(p);
    if (cuts.shared < 0) return AS_OK;
    const std::int64_t columns = p.table.shape[1];
    const std::int64_t common =
        cuts.rows[static_cast<std::size_t>(cuts.shared)] / p.k_cache.rows_per_block;
    std::vector<std::int32_t> table;
    for (std::int64_t r = 0; r < p.table.shape[0]; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int32_t own = *at<std::int32_t>(p.table, r, c);
        const std::int32_t other = *at<std::int32_t>(p.table, cuts.shared, c);
        table.push_back(from(c, common) && own >= 0 && other >= 0 ? other : own);
      }
    }
    p.form = AS_PAGED_ONE_PASS;
    p.table = make_tensor(table.data(), {p.table.shape[0], columns});
    return run_cpu(kFormed, &p, call, error);
  });
}

std::int32_t cascade_prefix_too_long(const void* params, const as_call* call, as_error* error) {
  return with_tables(params, call, error,
                     [](std::int64_t c, std::int64_t common) { return c == common; });
}

std::int32_t cascade_table_of_first(const void* params, const as_call* call, as_error* error) {
  return with_tables(params, call, error, [](std::int64_t, std::int64_t) { return true; });
}

}  // namespace

std::vector<RareBug> form_bugs() {
  const auto of = [](const char* name, const char* what, as_op_fn function, const char* scenario) {
    return RareBug{{name, what, kFormed, function}, scenario};
  };
  return {
      of("mutant:form_merged_by_halves",
         "The states over earlier and over new rows are merged as if both weighed the same.",
         form_merged_by_halves, "merged"),
      of("mutant:form_merged_with_other_query",
         "The state over earlier rows is merged into that of another head's query.",
         form_merged_with_other_query, "merged"),
      of("mutant:form_cut_row_twice", "The row before the cut counts in both passes.",
         form_cut_row_twice, "merged"),
      of("mutant:form_cut_row_lost", "The row before the cut counts in no pass.", form_cut_row_lost,
         "cascade"),
      of("mutant:form_context_lost", "Of two passes the one over new rows alone is put out.",
         form_context_lost, "merged"),
      of("mutant:form_lse_of_new_rows", "The LSE that goes with merged passes is that of new rows.",
         form_lse_of_new_rows, "merged"),
      of("mutant:cascade_prefix_too_long",
         "A cascade takes one block more for common than requests share.", cascade_prefix_too_long,
         "cascade"),
      of("mutant:cascade_table_of_first",
         "A cascade reads the rest of every request through the table of the first.",
         cascade_table_of_first, "cascade"),
  };
}

}  // namespace attnscope::mutants
