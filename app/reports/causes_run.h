// Known mistakes tried on an op that came out wrong in a session or stands wrong in a capture
// (explain_call.h).
#pragma once

#include <functional>
#include <string>

#include "app/reports/what_if_run.h"
#include "engine/capture/capture.h"
#include "engine/explain/explain_case.h"

namespace attnscope {

struct CausesOf {
  Place place;
  std::string lane;  // that ran the op
  Explanation why;
};

// No mistake is begun after so many seconds: somebody waits.
inline constexpr double kSecondsOfCauses = 20;

// Runs the scenario up to the place, as run_beside(), on a session of its own.
Result<CausesOf> causes_in_scenario(const Scenario& scenario, const LaneRegistry& registry,
                                    SessionOptions options, const LanesFrom& later,
                                    const SessionState* begin, const Place& place,
                                    const std::function<bool(double)>& progress);
// AS_BAD_INPUT: what the capture lacks of the call.
Result<CausesOf> causes_in_capture(const Capture& capture, const LaneRegistry& registry,
                                   const Place& place, int threads);

}  // namespace attnscope
