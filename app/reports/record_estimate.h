// How large a capture of a scenario will be, from steps of it that have run.
#pragma once

#include <cstdint>

#include "engine/capture/capture_options.h"
#include "engine/config/scenario.h"
#include "engine/session/snapshot.h"

namespace attnscope {

struct RecordEstimate {
  std::int64_t steps = 0;  // that the scenario takes, where nothing preempts and nothing is drafted
  std::uint64_t bytes = 0;
};

// Writes some of the steps that are kept into a folder of its own, which goes again, and counts:
// values by the token rows of all steps, the rest by steps. AS_USAGE where no whole step is kept.
Result<RecordEstimate> estimate_recording(const Snapshot& snapshot, const Scenario& scenario,
                                          CaptureLevel level);

}  // namespace attnscope
