#include "app/reports/steps_again.h"

namespace attnscope {

Result<void> steps_again(const Scenario& scenario, const LaneRegistry& registry,
                         SessionOptions options, const LanesFrom& later, std::int64_t last,
                         const std::function<void(const SessionInfo&, const StepTrace&)>& see,
                         const std::function<bool(double)>& progress, TraceOptions kept) {
  options.rewind_every = 0;
  if (later.step == 0) options.lanes = later.lanes;
  kept.budget_bytes = 0;  // the newest two steps
  TraceRecorder recorder(kept);
  auto session = Session::create(scenario, registry, options);
  if (!session) return session.error();
  Session& s = **session;
  s.set_observer(&recorder);
  const auto info = session_info(s);
  while (!s.finished() && s.cursor().step <= last) {
    const std::int64_t step = s.cursor().step;
    if (s.at_boundary() && step > 0 && step == later.step) {
      if (auto ok = s.change_lanes(registry, later.lanes, later.step); !ok) return ok;
    }
    if (auto ok = s.op(); !ok) return ok;
    if (!progress(static_cast<double>(step) / static_cast<double>(last + 1))) return Error{};
    if (!s.at_boundary()) continue;
    if (const auto trace = recorder.trace(step)) see(*info, *trace);
  }
  return {};
}

}  // namespace attnscope
