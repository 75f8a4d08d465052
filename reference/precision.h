// The one thing that differs between the references: where values are rounded.
//
// Every rounding is done once, from the float64 value to the target format, to nearest even.
#pragma once

#include <cstdint>

namespace attnscope::reference {

// Nearest bf16 value; overflow gives infinity, NaN stays NaN.
double round_to_bf16(double x);
// Nearest binary32 value.
double round_to_fp32(double x);

struct Precision {
  bool exact = false;
  bool fp32_sums = false;  // products and sums of long rows in fp32 instead of float64

  // A running sum after one more term.
  double sum(double x) const { return fp32_sums ? round_to_fp32(x) : x; }
  double bf16(double x) const { return exact ? x : round_to_bf16(x); }
  double fp32(double x) const { return exact ? x : round_to_fp32(x); }
  void bf16(double* values, std::int64_t n) const {
    if (exact) return;
    for (std::int64_t i = 0; i < n; ++i) values[i] = round_to_bf16(values[i]);
  }
  void fp32(double* values, std::int64_t n) const {
    if (exact) return;
    for (std::int64_t i = 0; i < n; ++i) values[i] = round_to_fp32(values[i]);
  }
};

}  // namespace attnscope::reference
