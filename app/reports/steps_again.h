// Runs steps of a scenario again on a session of its own, to look at what they computed: for what
// speaks of steps whose tensors are no longer kept.
#pragma once

#include <functional>

#include "app/reports/what_if_run.h"
#include "engine/session/snapshot.h"
#include "engine/session/trace_recorder.h"

namespace attnscope {

// From the start to the end of step `last`. see gets every step once it is whole, with what `kept`
// says, but for its budget. later: as run_beside(). progress: share of the way, asked between ops;
// false gives up, and the result is an error without text then.
Result<void> steps_again(const Scenario& scenario, const LaneRegistry& registry,
                         SessionOptions options, const LanesFrom& later, std::int64_t last,
                         const std::function<void(const SessionInfo&, const StepTrace&)>& see,
                         const std::function<bool(double)>& progress, TraceOptions kept = {});

}  // namespace attnscope
