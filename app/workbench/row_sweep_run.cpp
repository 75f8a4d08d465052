#include "app/workbench/row_sweep_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "app/reports/ess_trace.h"
#include "app/reports/steps_again.h"
#include "app/wiring/wiring.h"

namespace attnscope {
namespace {

// Steps of the session up to `last` once more, for their selections.
Result<SelectionTrace> selections_again(const Scenario& scenario, const SessionOptions& options,
                                        const LanesFrom& later, std::int64_t last,
                                        SweepProgress& progress) {
  TraceOptions kept;
  kept.all_rows = true;
  kept.attention = false;
  kept.max_events = 0;
  kept.keeps = [](const Place& place, std::int32_t) {
    return as_op_role(place.op) == AS_ROLE_SELECT;
  };
  std::optional<SelectionReader> reader;
  Result<void> read;
  constexpr std::int64_t kShares = 1000;
  progress.all = kShares;
  const auto ok = steps_again(
      scenario, all_lanes(), options, later, last,
      [&](const SessionInfo& info, const StepTrace& step) {
        if (!reader) reader.emplace(info, "the session");
        if (read) read = reader->take(step);
      },
      [&](double share) {
        progress.done = static_cast<std::int64_t>(share * kShares);
        return !progress.stopped && static_cast<bool>(read);
      },
      kept);
  if (!read) return read.error();
  if (!ok) return ok.error();
  if (!reader) return usage_error("no step has run", "run some: step.forward");
  return reader->finish("this session");
}

}  // namespace

Result<void> RowSweepRun::is_free() { return ReportRun::is_free("sweep", "row_sweep.stop"); }

Result<void> RowSweepRun::begin(const Workbench& bench) {
  if (auto ok = is_free(); !ok) return ok;
  const Snapshot* snapshot = bench.snapshot();
  if (snapshot == nullptr) return usage_error("nothing is open", "open a scenario or a capture");
  if (const Capture* capture = bench.capture()) {
    ReportRun::begin([path = capture->path()](SweepProgress& progress) -> Result<RowSweep> {
      const auto opened = Capture::open(path);
      if (!opened) return opened.error();
      const auto trace = selections_of(**opened, &progress.stopped);
      if (!trace) return trace.error();
      return sweep_rows(*trace, {}, progress);
    });
    return {};
  }
  std::int64_t last = -1;
  for (const auto& step : snapshot->steps) {
    if (step->complete) last = std::max(last, step->step);
  }
  if (last < 0) return usage_error("no step has run", "run some: step.forward");
  SessionOptions options = bench.options_beside();
  options.references = References::kNone;
  ReportRun::begin(
      [options = std::move(options), last, later = bench.lanes_from(),
       scenario = bench.setup().scenario](SweepProgress& progress) -> Result<RowSweep> {
        const auto trace = selections_again(scenario, options, later, last, progress);
        if (!trace) return trace.error();
        return sweep_rows(*trace, {}, progress);
      });
  return {};
}

Result<void> RowSweepRun::begin(const GeneratorOptions& options) {
  if (auto ok = is_free(); !ok) return ok;
  ReportRun::begin(
      [options](SweepProgress& progress) { return sweep_generated(options, {}, progress); });
  return {};
}

}  // namespace attnscope
