#include "engine/trace/drift.h"

#include <algorithm>

#include "kernels/params/op_table.h"

namespace attnscope {

void DriftWatch::add(const TapResult& result) {
  if (result.step != step_) {
    before_.by_ties = std::min(before_.by_ties, now_.by_ties);
    before_.otherwise = std::min(before_.otherwise, now_.otherwise);
    now_ = {};
    scores_layer_ = kNone;
    step_ = result.step;
  }
  const auto role = as_op_role(result.op);
  if (role == AS_ROLE_SCORE && result.inherited) {
    scores_layer_ = result.layer;
    scores_ = result.inherited->cosine;
  }
  if (role != AS_ROLE_SELECT || !result.selection || result.selection->tokens == 0) return;
  // Each side selected by its own scores, so that no swap is wider than twice what these differ by;
  // and they are the same scores but for what has drifted.
  const SelectionDrift& drift = *result.selection;
  const bool ties = result.verdict != Verdict::kWrong && result.layer == scores_layer_ &&
                    drift.margin <= 2 * drift.score_difference && !beyond(result.layer, scores_);
  int& first = ties ? now_.by_ties : now_.otherwise;
  first = std::min(first, result.layer);
}

bool DriftWatch::past_near_ties(int layer) const {
  // Of a step before only what a layer put out is read on, by the layers behind it.
  const auto lies_before = [layer](int before, int now) { return before < layer || now <= layer; };
  return lies_before(before_.by_ties, now_.by_ties) &&
         !lies_before(before_.otherwise, now_.otherwise);
}

bool DriftWatch::beyond(int layer, double cosine) const {
  return !(cosine <= limit_ * (past_near_ties(layer) ? kPastNearTies : 1));
}

}  // namespace attnscope
