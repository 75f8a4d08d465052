// One element of a tap from step to step: the newest row of the same request, same head, same dim.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/common/views/tensor_view.h"
#include "engine/session/step_trace.h"

namespace attnscope {

// By kept step, ascending; steps in which the element holds no value are left out.
struct ElementHistory {
  std::vector<double> steps, values;
  std::vector<double> references;  // NaN where none ran
};

// place: layer and op (its step does not count). index: along the tap's axes; the place along
// token_axis does not count.
ElementHistory element_history(const std::vector<std::shared_ptr<const StepTrace>>& traces,
                               const Place& place, const std::string& tap, std::int32_t request,
                               const TapIndex& index, int token_axis);

// "o of head 5, dim 17, request 0: 0.25 in step 9, from -0.5 to 0.75 over 12 steps."
std::string history_sentence(const ElementHistory& history, const std::string& what,
                             std::int64_t step);

}  // namespace attnscope
