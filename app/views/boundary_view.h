// Which token completes which entry: the tokens around one as cells, the entries that they are
// pooled into, and where each was or will be made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

// Tokens [first, end) of the request: one, or a quarter of an entry's own window where that is
// long.
struct BoundaryCell {
  std::int64_t first = 0, end = 0;
  std::int64_t completes = -1;      // entry that the last of them makes; -1 = none
  std::int64_t slot = -1;           // that it is written to in this step; -1 = not in this step
  bool computed = false;            // all of them, at the end of this step
  bool in_step = false;             // some of them in this step
  bool own = false, older = false;  // of the entry looked at: its own window, the one before
};
struct BoundaryView {
  std::string why_empty;
  std::string sentence;
  std::int64_t ratio = 0;
  std::int64_t entry = -1;  // looked at
  std::int64_t token = -1;
  std::vector<BoundaryCell> cells;  // ascending
};
// entry: -1 = the one that the token is in the own window of.
BoundaryView boundary_view(const SessionInfo& info, const StepTrace& step, int layer,
                           std::int32_t request, std::int64_t position, std::int64_t entry);

}  // namespace attnscope
