// What if: the op that ran last once more with one thing changed, by its lane and by ref.sim alike.
// The change that makes the difference go away points to the part that is wrong.
#pragma once

#include <string>
#include <vector>

#include "engine/session/session.h"

namespace attnscope {

struct WhatIf {
  std::string change;       // "as it ran", "no sink", "lane cpu"
  std::string sentence;     // what was changed
  std::string error;        // why it could not be run; empty = it ran
  double budget_used = 0;   // worst tap, lane against ref.sim, both changed
  std::int64_t beyond = 0;  // elements beyond the tolerance
  std::int64_t elements = 0;
  std::string worst_tap;
  bool right() const { return error.empty() && budget_used <= 1; }
};

// Every change that applies to the op. The first is "as it ran". lanes: other lanes to try; those
// without the op are left out. Nothing in the session changes.
Result<std::vector<WhatIf>> what_if(const Session& session, const LaneRegistry& registry,
                                    const std::vector<std::string>& lanes);

// Which change removes the error, in one sentence.
std::string what_if_sentence(const std::vector<WhatIf>& results);

}  // namespace attnscope
