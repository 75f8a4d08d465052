// What the run so far has exercised, and what not: a sound run proves nothing about paths that it
// never took.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/coverage.h"
#include "engine/session/snapshot.h"

namespace attnscope {

struct CoverageLine {
  CoveredPath path;
  std::int64_t here = 0;  // how often in the step under the cursor
};

struct CoverageView {
  std::string why_empty;  // not empty: nothing to show, for this reason
  std::string sentence;
  std::vector<CoverageLine> lines;  // those never met first, else in the order of a step
  std::int64_t met = 0;
  std::int64_t steps = 0;      // that were watched
  std::int64_t unwatched = 0;  // that ran before anybody watched
};

// step: under the cursor.
CoverageView coverage_view(const SessionInfo& info, const Snapshot& snapshot, std::int64_t step);

}  // namespace attnscope
