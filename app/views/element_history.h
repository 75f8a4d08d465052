// One element of a tap from step to step: the newest row of the same request, same head, same dim.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/views/tensor_view.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// By step, ascending; steps in which the element holds no value are left out.
struct ElementHistory {
  std::vector<double> steps, values;
  std::vector<double> references;  // NaN where none ran
};

// An element that is followed through the steps.
struct FollowedElement {
  Place place;  // layer and op; its step does not count
  std::string tap;
  std::int32_t request = -1;
  TapIndex index;  // along the tap's axes; the place along token_axis does not count
  int token_axis = -1;
  // The same element, whatever does not count.
  bool same_as(const FollowedElement& other) const;
};

// What a later step than those that are there holds of it.
void add_to_history(const StepTrace& step, const FollowedElement& element, ElementHistory& history);
ElementHistory element_history(const std::vector<std::shared_ptr<const StepTrace>>& traces,
                               const FollowedElement& element);

// "o of head 5, dim 17, request 0: 0.25 in step 9, from -0.5 to 0.75 over 12 kept steps."
// which: the steps that were looked at, "kept" or "recorded".
std::string history_sentence(const ElementHistory& history, const std::string& what,
                             std::int64_t step, const char* which);

}  // namespace attnscope
