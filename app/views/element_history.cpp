#include "app/views/element_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "app/text/format.h"
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

bool FollowedElement::same_as(const FollowedElement& other) const {
  if (place.layer != other.place.layer || place.op != other.place.op || tap != other.tap ||
      request != other.request || token_axis != other.token_axis ||
      index.rank != other.index.rank) {
    return false;
  }
  for (int axis = 0; axis < index.rank; ++axis) {
    if (axis != token_axis && index[axis] != other.index[axis]) return false;
  }
  return true;
}

void add_to_history(const StepTrace& step, const FollowedElement& element,
                    ElementHistory& history) {
  const OpTrace* op = step.find(element.place.layer, element.place.op);
  const TapCopy* copy = op == nullptr ? nullptr : op->tap(element.tap);
  if (copy == nullptr || copy->value.rank != element.index.rank) return;
  TapIndex at = element.index;
  if (element.token_axis >= 0) at[element.token_axis] = newest_row(step, *op, element.request);
  bool inside = copy->value.data != nullptr;
  for (int axis = 0; axis < at.rank; ++axis) {
    inside = inside && at[axis] >= 0 && at[axis] < copy->value.shape[axis];
  }
  if (!inside || gaps_of(*op, *copy).why(*copy, at) != nullptr) return;
  history.steps.push_back(static_cast<double>(step.step));
  history.values.push_back(element_at(copy->value, at));
  history.references.push_back(present(copy->reference) ? element_at(copy->reference, at)
                                                        : std::numeric_limits<double>::quiet_NaN());
}

ElementHistory element_history(const std::vector<std::shared_ptr<const StepTrace>>& traces,
                               const FollowedElement& element) {
  ElementHistory history;
  for (const auto& step : traces) add_to_history(*step, element, history);
  return history;
}

std::string history_sentence(const ElementHistory& history, const std::string& what,
                             std::int64_t step, const char* which) {
  if (history.steps.empty()) return fmt::format("{} holds no value in any {} step.", what, which);
  std::string text = what + ": ";
  const auto now = std::find(history.steps.begin(), history.steps.end(), static_cast<double>(step));
  if (now != history.steps.end()) {
    const auto i = static_cast<std::size_t>(now - history.steps.begin());
    text += fmt::format("{} in step {}, ", format_number(history.values[i]), step);
  }
  const auto [low, high] = std::minmax_element(history.values.begin(), history.values.end());
  return text + fmt::format("from {} to {} over {} {} {}.", format_number(*low),
                            format_number(*high), history.steps.size(), which,
                            history.steps.size() == 1 ? "step" : "steps");
}

}  // namespace attnscope
