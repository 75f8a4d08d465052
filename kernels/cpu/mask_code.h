// Runs the code of masks and score functions (kernels/params/mask_code.h).
#pragma once

#include <cstdint>

#include "kernels/cpu/check.h"
#include "kernels/params/mask_code.h"
#include "kernels/params/tensor.h"

namespace attnscope::cpu {

// What code is asked about.
struct MaskPlace {
  std::int64_t query = 0, key = 0, head = 0, request = 0;
};

// The value of code that check_mask_code has passed. score: what score functions are given.
double run_mask_code(const as_tensor& code, const MaskPlace& place, double score = 0);

// Whether the key is seen.
inline bool mask_shows(const as_tensor& code, const MaskPlace& place) {
  const double value = run_mask_code(code, place);
  return value > 0 || value < 0;
}

// Whether it asks which head or request it is of.
bool mask_uses(const as_tensor& code, as_mask_op variable);

// The tensor holds code whose stack comes out right; is_score: `score` may be read. Absent: right.
bool check_mask_code(const char* name, const as_tensor& code, bool is_score, bool values,
                     Check& check);

}  // namespace attnscope::cpu
