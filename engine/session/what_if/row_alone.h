// The op that ran last once more for one of its tokens alone: cheap, and decisive where a result
// depends on who else is in the batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/session.h"

namespace attnscope {

struct RowAlone {
  bool possible = false;  // the op works token by token
  std::int64_t token = -1;
  std::int64_t elements = 0, differing = 0;
  double worst_ulp = 0;  // steps of the tap's dtype
  // Worst difference in units of what another order of sums may cause: two steps of bf16 or 2^-10
  // of the row's largest element (weights in fp16, lists split at other places); of paged_attention
  // and varlen_attention 2^-8 (one token's weights may be rounded to bf16 and many tokens' not, or
  // against another maximum, as the class "attention" of assets/tolerances.json allows); of an fp32
  // tap 2^-18 of the element or 1e-6. Caches: equal bytes.
  double budget_used = 0;
  std::string worst;  // tap and element
};

// Runs it with the lane that ran it, on the same inputs. Nothing in the session changes.
RowAlone run_row_alone(const Session& session, std::int64_t token);

}  // namespace attnscope
