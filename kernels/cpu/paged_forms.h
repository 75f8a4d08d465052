// Where the form of a call of paged_attention (as_paged_form) cuts the rows of its requests.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params/paged_params.h"

namespace attnscope::cpu {

struct ContextCuts {
  // By request: rows before this one are attended on their own; 0 = none are.
  std::vector<std::int64_t> rows;
  // Of a cascade: the request through whose table all read those rows; -1 = each its own.
  std::int64_t shared = -1;
};

// The call has been checked.
ContextCuts context_cuts(const as_paged_attention_params& p);

}  // namespace attnscope::cpu
