#include "engine/trace/tap_result.h"

#include <algorithm>
#include <cmath>

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

std::string Summary::verdict() const {
  if (count(Verdict::kWrong) > 0) return "wrong";
  if (diverged) return "diverged";
  if (taps == 0 || count(Verdict::kNotCompared) > 0) return "not_compared";
  return "ok";
}

Summary summarise(const std::vector<TapResult>& results, double drift_limit) {
  Summary summary;
  summary.drift_limit = drift_limit;
  for (const TapResult& result : results) {
    ++summary.taps;
    ++summary.counts[static_cast<std::size_t>(result.verdict)];
    if (result.verdict == Verdict::kWrong && !summary.first_wrong) summary.first_wrong = result;
    if (result.verdict == Verdict::kNearTie) summary.near_ties.push_back(result);
    if (result.selection && result.selection->tokens > 0) summary.selections.push_back(result);
    if (result.op != AS_OP_RESIDUAL || !result.inherited) continue;
    auto drift = std::find_if(summary.drift.begin(), summary.drift.end(),
                              [&](const LayerDrift& d) { return d.layer == result.layer; });
    if (drift == summary.drift.end()) {
      drift = summary.drift.insert(drift, {result.layer, -1.0, 0});
    }
    // A NaN difference is the worst there is.
    if (!std::isnan(drift->cosine) && !(result.inherited->cosine <= drift->cosine)) {
      drift->cosine = result.inherited->cosine;
      drift->step = result.step;
    }
    if (!(drift->cosine <= drift_limit)) summary.diverged = true;
  }
  return summary;
}

}  // namespace attnscope
