#include "app/common/views/element_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "app/common/format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Place of the request's newest row along the tap's T axis; -1 when it has none.
std::int64_t newest_row(const StepTrace& step, const OpTrace& op, std::int32_t request) {
  for (std::int64_t t = step.metadata.num_tokens_in_step() - 1; t >= 0; --t) {
    if (step.request_of(t) != request) continue;
    const std::int64_t index = index_of_token_row(step, op, t);
    if (index >= 0) return index;
  }
  return -1;
}

}  // namespace

ElementHistory element_history(const std::vector<std::shared_ptr<const StepTrace>>& traces,
                               const Place& place, const std::string& tap, std::int32_t request,
                               const TapIndex& index, int token_axis) {
  ElementHistory history;
  for (const auto& step : traces) {
    const OpTrace* op = step->find(place.layer, place.op);
    const TapCopy* copy = op == nullptr ? nullptr : op->tap(tap);
    if (copy == nullptr || copy->value.rank != index.rank) continue;
    TapIndex at = index;
    if (token_axis >= 0) at[token_axis] = newest_row(*step, *op, request);
    bool inside = true;
    for (int axis = 0; axis < at.rank; ++axis) {
      inside = inside && at[axis] >= 0 && at[axis] < copy->value.shape[axis];
    }
    if (!inside || gaps_of(*op, *copy).why(*copy, at) != nullptr) continue;
    history.steps.push_back(static_cast<double>(step->step));
    history.values.push_back(element_at(copy->value, at));
    history.references.push_back(present(copy->reference)
                                     ? element_at(copy->reference, at)
                                     : std::numeric_limits<double>::quiet_NaN());
  }
  return history;
}

std::string history_sentence(const ElementHistory& history, const std::string& what,
                             std::int64_t step) {
  if (history.steps.empty()) return what + " holds no value in any kept step.";
  std::string text = what + ": ";
  const auto now = std::find(history.steps.begin(), history.steps.end(), static_cast<double>(step));
  if (now != history.steps.end()) {
    const auto i = static_cast<std::size_t>(now - history.steps.begin());
    text += fmt::format("{} in step {}, ", format_number(history.values[i]), step);
  }
  const auto [low, high] = std::minmax_element(history.values.begin(), history.values.end());
  return text + fmt::format("from {} to {} over {} {}.", format_number(*low), format_number(*high),
                            history.steps.size(),
                            history.steps.size() == 1 ? "kept step" : "kept steps");
}

}  // namespace attnscope
