// The workbench's side of captures: one is shown in the place of a session, or made of one.
#include <fmt/format.h>

#include <algorithm>

#include "app/workbench/workbench.h"
#include "engine/capture/again.h"

namespace attnscope {
namespace {

// Traces that stay at hand: where the cursor is, the step before it, and where it came from.
constexpr std::size_t kLoadedTraces = 16;

// Puts the trace of a step into the list, which ascends by step.
void insert(std::vector<std::shared_ptr<const StepTrace>>& traces,
            std::shared_ptr<const StepTrace> trace) {
  const auto at = std::ranges::lower_bound(traces, trace->step, {},
                                           [](const auto& known) { return known->step; });
  traces.insert(at, std::move(trace));
}

// The ones furthest from `step` go.
void thin_out(std::vector<std::shared_ptr<const StepTrace>>& traces, std::int64_t step) {
  while (traces.size() > kLoadedTraces) {
    const bool front = step - traces.front()->step > traces.back()->step - step;
    traces.erase(front ? traces.begin() : std::prev(traces.end()));
  }
}

}  // namespace

void Workbench::say_read_only() {
  say(Message::Kind::kInfo,
      "A capture shows what was recorded and runs nothing; open its scenario to run on.");
}

// A capture that holds no tables and values still says what its ops took and launched.
std::vector<OpCost> Workbench::costs_of(std::int64_t step) {
  std::vector<OpCost> costs;
  auto entry = capture_->entry(step);
  if (!entry) {
    say(Message::Kind::kError, entry.error().text());
  } else if (*entry) {
    for (const OpEntry& op : (*entry)->ops) {
      costs.push_back(
          {{step, op.layer, op.op}, op.microseconds, op.launches.value_or(OpLaunches{})});
    }
  }
  return costs;
}

void Workbench::show_capture(const Place& place) {
  auto next = std::make_shared<Snapshot>(*snapshot_);
  if (next->summary(place.step) == nullptr) {
    say(Message::Kind::kInfo,
        fmt::format("Step {} is not in this capture: it holds steps {} to {}.", place.step,
                    next->steps.front()->step, next->steps.back()->step));
    return;
  }
  for (const std::int64_t step : {place.step, place.step - 1}) {
    if (next->summary(step) == nullptr || next->trace(step) != nullptr) continue;
    auto trace = capture_->trace(step);
    if (!trace) {
      say(Message::Kind::kError, trace.error().text());
    } else if (*trace) {
      insert(next->traces, std::move(*trace));
    }
  }
  next->costs = next->trace(place.step) != nullptr ? std::vector<OpCost>() : costs_of(place.step);
  thin_out(next->traces, place.step);
  next->trace_bytes = 0;
  for (const auto& trace : next->traces) next->trace_bytes += trace->bytes;
  if (const StepTrace* here = next->trace(place.step)) {
    next->requests = here->requests;
    next->owners = here->owners;
    next->free_blocks = static_cast<std::int64_t>(here->free_list.size());
  }
  ++next->version;
  snapshot_ = std::move(next);
  cursor_ = place;
  target_.reset();
  ++version_;
}

void Workbench::set_comparison(std::shared_ptr<const RunPair> comparison) {
  comparison_ = std::move(comparison);
  ++version_;
}

std::string Workbench::why_missing(CaptureLevel needs) const {
  if (!capture_ || cursor_.step < 0) return "";
  if (needs != CaptureLevel::kFull) {
    const CaptureIndex& index = capture_->index();
    if (index.level >= needs) return "";
    const char* least = capture_level_name(needs);
    return fmt::format("The {} of step {} were not recorded: this capture's level is {}. {}", least,
                       cursor_.step, capture_level_name(index.level),
                       record_again(index, capture_->path(), fmt::format("--level {}", least)));
  }
  const OpTrace* trace = op();
  const CaptureOptions tables;  // of level tables: what more there is, level full has
  const bool values = trace != nullptr && std::ranges::any_of(trace->taps, [&](const TapCopy& tap) {
                        return tap.output || !tables.keeps(cursor_, tap.value.dtype);
                      });
  return values ? "" : capture_->why_missing(cursor_, "");
}

}  // namespace attnscope
