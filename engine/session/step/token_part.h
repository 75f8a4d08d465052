// Some tokens of a step, one behind the other, and an op's call for them alone.
#pragma once

#include <cstdint>

#include "engine/session/step/op_params.h"

namespace attnscope {

struct TokenPart {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const TokenPart&, const TokenPart&) = default;
};

// The call with, of each tensor whose first axis is the step's tokens, those rows. It writes to the
// same memory as the whole one.
OpParams tokens_of(const OpParams& whole, TokenPart tokens);

// Calls visit(tensor) for each tensor of the call that has tokens as its first axis and is written.
template <class Visit>
void each_row_output(const OpParams& params, const Visit& visit) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind != AS_TAP_TENSOR || tap.direction != AS_TAP_OUT) continue;
    const as_tensor& tensor = params.tensor(tap.offset);
    if (tensor.data != nullptr && tap.axes[0] == 'T' && (tap.axes[1] == ',' || tap.axes[1] == '\0'))
      visit(tensor);
  }
}

}  // namespace attnscope
