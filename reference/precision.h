// The one thing that differs between the references: where values are rounded, and in what sums are
// done. reference/torch/numbers.h acts on it.
//
// Every rounding is done once, from the float64 value to the target format, to nearest even.
#pragma once

#include <cstdint>

namespace attnscope::reference {

struct Precision {
  bool exact = false;         // nothing is rounded
  bool fp32_sums = false;     // products and sums of long rows in fp32 instead of float64
  std::uint64_t weights = 0;  // as_call::weights
};

}  // namespace attnscope::reference
