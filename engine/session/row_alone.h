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
  std::string worst;     // tap and element
};

// Runs it with the lane that ran it, on the same inputs. Nothing in the session changes.
RowAlone run_row_alone(const Session& session, std::int64_t token);

}  // namespace attnscope
