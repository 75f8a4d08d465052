#include "app/workbench/row_sweep_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>

#include "app/reports/ess_trace.h"
#include "app/reports/steps_again.h"
#include "app/wiring/wiring.h"

namespace attnscope {
namespace {

using namespace std::chrono_literals;

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

template <class Work>
std::future<Result<RowSweep>> on_thread(Work work) {
  return std::async(std::launch::async, [work = std::move(work)]() -> Result<RowSweep> {
    try {
      return work();
    } catch (const std::exception& e) {  // no memory, say
      return internal_error(fmt::format("it was given up: {}", e.what()));
    }
  });
}

}  // namespace

// Its panel may be closed, and nobody may have asked since it ended.
Result<void> RowSweepRun::may_begin() {
  (void)poll();
  if (!work_.valid()) return {};
  return usage_error("a sweep is running already", "wait for it, or stop it: row_sweep.stop");
}

Result<void> RowSweepRun::begin(const Workbench& bench) {
  if (auto ok = may_begin(); !ok) return ok;
  const Snapshot* snapshot = bench.snapshot();
  if (snapshot == nullptr) return usage_error("nothing is open", "open a scenario or a capture");
  progress_ = std::make_shared<SweepProgress>();
  if (const Capture* capture = bench.capture()) {
    work_ = on_thread([path = capture->path(), progress = progress_]() -> Made {
      const auto opened = Capture::open(path);
      if (!opened) return opened.error();
      const auto trace = selections_of(**opened);
      if (!trace) return trace.error();
      return sweep_rows(*trace, {}, *progress);
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
  work_ = on_thread([progress = progress_, options = std::move(options), last,
                     later = bench.lanes_from(), scenario = bench.setup().scenario]() -> Made {
    const auto trace = selections_again(scenario, options, later, last, *progress);
    if (!trace) return trace.error();
    return sweep_rows(*trace, {}, *progress);
  });
  return {};
}

Result<void> RowSweepRun::begin(const GeneratorOptions& options) {
  if (auto ok = may_begin(); !ok) return ok;
  progress_ = std::make_shared<SweepProgress>();
  work_ = on_thread(
      [options, progress = progress_] { return sweep_generated(options, {}, *progress); });
  return {};
}

void RowSweepRun::stop() {
  if (progress_) progress_->stopped = true;
  if (work_.valid()) stopped_.push_back(std::move(work_));
  progress_.reset();
}

bool RowSweepRun::poll() {
  std::erase_if(stopped_,
                [](const auto& run) { return run.wait_for(0s) == std::future_status::ready; });
  if (!work_.valid() || work_.wait_for(0s) != std::future_status::ready) return false;
  Made made = work_.get();
  progress_.reset();
  error_.clear();
  if (made) {
    sweep_ = std::move(*made);
  } else {
    error_ = made.error().text();
  }
  return true;
}

std::optional<double> RowSweepRun::running() const {
  if (!work_.valid() || !progress_) return std::nullopt;
  return static_cast<double>(progress_->done) /
         static_cast<double>(std::max<std::int64_t>(1, progress_->all));
}

}  // namespace attnscope
