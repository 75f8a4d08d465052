// The blocks at the head of all requests' tables: rows that every request reads, which attention
// may read once for all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

struct CommonPrefix {
  std::string name;         // of the group
  std::int64_t blocks = 0;  // as the scheduler counted them
  std::int64_t tokens = 0;  // whose rows, or entries, they hold
  std::int32_t last = -1;   // block that ends it; -1 = there is none
  std::int32_t next = -1;   // block behind it, where tables part; -1 = none
  std::string why;          // why it is no longer
};
struct CommonPrefixView {
  std::string sentence;
  std::vector<CommonPrefix> groups;  // empty: the step does not say
};
CommonPrefixView common_prefix_view(const SessionInfo& info, const StepTrace& step);

}  // namespace attnscope
