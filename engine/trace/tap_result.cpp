#include "engine/trace/tap_result.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/trace/drift.h"
#include "kernels/params/op_table.h"

namespace attnscope {

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kEqual:
      return "equal";
    case Verdict::kRounding:
      return "rounding";
    case Verdict::kQuantisation:
      return "quantisation";
    case Verdict::kNearTie:
      return "near_tie";
    case Verdict::kWrong:
      return "wrong";
    case Verdict::kNotCompared:
      return "not_compared";
  }
  return "?";
}

bool is_worse(Verdict a, Verdict b) {
  if (a == Verdict::kNotCompared || b == Verdict::kNotCompared) return a < b;
  return a > b;
}

Verdict worse(Verdict a, Verdict b) { return is_worse(a, b) ? a : b; }

TapResult wrong_result(as_op_id op, std::string tap, std::int64_t elements, std::int64_t beyond,
                       std::string note) {
  TapResult result;
  result.op = op;
  result.tap = std::move(tap);
  result.elements = elements;
  result.tolerance = "exact";
  result.introduced = ErrorFigures{0, 0, 0, beyond, beyond};
  result.verdict = Verdict::kWrong;
  result.budget_used = std::numeric_limits<double>::infinity();
  result.note = std::move(note);
  return result;
}

std::string Summary::verdict() const {
  if (count(Verdict::kWrong) > 0) return "wrong";
  if (stood_in) return "failed";
  if (diverged) return "diverged";
  if (taps == 0 || count(Verdict::kNotCompared) > 0) return "not_compared";
  return "ok";
}

namespace {

void note_budget(const TapResult& result, std::vector<BudgetUse>& budgets) {
  if (!result.introduced) return;
  auto at = std::find_if(budgets.begin(), budgets.end(), [&](const BudgetUse& b) {
    return b.op == result.op && b.tap == result.tap && b.lane == result.lane;
  });
  if (at == budgets.end()) {
    at = budgets.insert(at, {result.op, result.tap, result.lane, result.tolerance});
    at->exact = result.tolerance == "exact" || result.tolerance == "bytes";
  }
  at->used = std::max(at->used, result.budget_used);
  ++at->taps;
}

}  // namespace

Summary summarise(const std::vector<TapResult>& results, double drift_limit) {
  Summary summary;
  summary.drift_limit = drift_limit;
  summary.blamed = blame(results);
  DriftWatch watch(drift_limit);
  for (const TapResult& result : results) {
    ++summary.taps;
    note_budget(result, summary.budgets);
    ++summary.counts[static_cast<std::size_t>(result.verdict)];
    if (result.verdict == Verdict::kWrong && !summary.first_wrong) summary.first_wrong = result;
    if (result.verdict == Verdict::kNearTie) summary.near_ties.push_back(result);
    if (result.selection && result.selection->tokens > 0) summary.selections.push_back(result);
    watch.add(result);
    if (as_op_role(result.op) != AS_ROLE_RESIDUAL || !result.inherited) continue;
    auto drift = std::find_if(summary.drift.begin(), summary.drift.end(),
                              [&](const LayerDrift& d) { return d.layer == result.layer; });
    if (drift == summary.drift.end()) {
      drift = summary.drift.insert(drift, {result.layer, -1.0, 0});
    }
    // A NaN difference is the worst there is.
    if (!std::isnan(drift->cosine) && !(result.inherited->cosine <= drift->cosine)) {
      drift->cosine = result.inherited->cosine;
      drift->step = result.step;
      drift->past_near_ties = watch.past_near_ties(result.layer);
    }
    if (watch.beyond(result.layer, result.inherited->cosine)) {
      drift->beyond = summary.diverged = true;
    }
  }
  return summary;
}

}  // namespace attnscope
