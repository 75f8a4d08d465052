// A what-if from a scenario's start: runs it up to an op, on a session of its own, and then the op
// once more with one thing changed at a time (engine/session/what_if/what_if.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/config/scenario.h"
#include "engine/session/persist/session_file.h"
#include "engine/session/step/step_trace.h"
#include "engine/session/what_if/row_alone.h"
#include "engine/session/what_if/what_if.h"

namespace attnscope {

// Runs until the op at `place` has just run. after_op is asked after every op on the way, that one
// included; false stops, and the session is where it stands then.
Result<std::unique_ptr<Session>> run_to_op(const Scenario& scenario, const LaneRegistry& registry,
                                           const SessionOptions& options, const Place& place,
                                           const std::function<bool(Session&)>& after_op);

// Lanes that a session got on its way.
struct LanesFrom {
  std::int64_t step = -1;  // -1: none
  std::vector<std::string> lanes;
};

struct WhatIfOf {
  Place place;
  std::string lane;  // that ran the op
  std::vector<WhatIf> changes;
  std::string sentence;
  RowAlone alone;  // the token with the worst element, or the last
  // Nothing was left out that the steps before where it began from would be needed for.
  bool whole = true;
};

// The same with the lanes that a session got on its way. options.references is not asked: it runs
// ref.sim. begin: what that session was before an earlier step, with ref.sim's history; null = from
// the start. progress: share of the way; false gives up, and the result is an error without text
// then.
Result<std::unique_ptr<Session>> run_beside(const Scenario& scenario, const LaneRegistry& registry,
                                            SessionOptions options, const LanesFrom& later,
                                            const SessionState* begin, const Place& place,
                                            const std::function<bool(double)>& progress,
                                            const std::function<void(Session&)>& after_op);

// As run_beside(). Not from the start, changes that read rows as they were before quantisation are
// left out: whole says whether there are any.
Result<WhatIfOf> what_if_of(const Scenario& scenario, const LaneRegistry& registry,
                            SessionOptions options, const LanesFrom& later,
                            const SessionState* begin, const Place& place,
                            const std::function<bool(double)>& progress);

// Which token to compute alone: the one with the worst element where the op is wrong, else the
// last.
std::int64_t token_to_run_alone(const Session& session, const WhatIf& as_it_ran);

}  // namespace attnscope
