// What a run is to be stopped at.
#include <fmt/format.h>

#include <algorithm>

#include "app/workbench/workbench_impl.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

// The first of the stops that are on and hold.
std::optional<StopHit> first_hit(const std::vector<Workbench::Stop>& stops, const SessionInfo& info,
                                 const StepSummary& step, const StepTrace* trace) {
  for (const Workbench::Stop& stop : stops) {
    if (!stop.on) continue;
    if (auto hit = stop.condition.find(info, step, trace)) return hit;
  }
  return std::nullopt;
}

}  // namespace

void Workbench::take_stops(const Scenario& scenario) {
  stops_.clear();
  for (const ScenarioStop& stop : scenario.stops) {
    auto condition = StopCondition::parse(stop.when);
    if (condition) {
      stops_.push_back({std::move(*condition), stop.on});
    } else {
      say(Message::Kind::kWarning,
          "The scenario has a stop that is none: " + condition.error().text());
    }
  }
}

std::vector<ScenarioStop> Workbench::scenario_stops() const {
  std::vector<ScenarioStop> stops;
  stops.reserve(stops_.size());
  for (const Stop& stop : stops_) stops.push_back({stop.condition.text(), stop.on});
  return stops;
}

Result<void> Workbench::add_stop(std::string_view text) {
  auto condition = StopCondition::parse(text);
  if (!condition) return condition.error();
  const auto same = [&](const Stop& s) { return s.condition.text() == condition->text(); };
  const auto known = std::ranges::find_if(stops_, same);
  if (known != stops_.end()) {
    known->on = true;
  } else {
    stops_.push_back({std::move(*condition), true});
  }
  ++version_;
  return {};
}

void Workbench::remove_stop(std::size_t index) {
  if (index >= stops_.size()) return;
  stops_.erase(stops_.begin() + static_cast<std::ptrdiff_t>(index));
  ++version_;
}

void Workbench::switch_stop(std::size_t index, bool on) {
  if (index >= stops_.size()) return;
  stops_[index].on = on;
  ++version_;
}

Result<void> Workbench::check_stops() const {
  if (std::ranges::any_of(stops_, &Stop::on)) return {};
  return usage_error(stops_.empty() ? "there is no stop to run to" : "every stop is off",
                     "add one, such as stop.add=wrong of sparse_attention");
}

std::optional<StopHit> Workbench::stop_hit(const StepSummary& step) const {
  return first_hit(stops_, *snapshot_->info, step, snapshot_->trace(step.step));
}

void Workbench::go_to_hit(const StopHit& hit, const TapResult* result) {
  say(Message::Kind::kInfo, fmt::format("Step {}: {}.", hit.place.step, hit.why));
  if (result != nullptr && result->verdict == Verdict::kWrong) return go_to_result(*result);
  // What happened to blocks shows in any op: the one that was looked at stays.
  const bool any_op = hit.block >= 0 || hit.request >= 0;
  Place place = hit.place;
  if (any_op && hit.tap.empty() && cursor_.step >= 0) {
    place.layer = cursor_.layer;
    place.op = cursor_.op;
  }
  go_to(place);
  Selection selection = selection_;
  if (!hit.tap.empty()) selection.tap = hit.tap;
  if (hit.block >= 0) selection.block = hit.block;
  if (hit.request >= 0) selection.request = hit.request;
  select(selection);
}

Result<void> Workbench::run_to_stop() {
  if (auto ok = check_stops(); !ok) return ok;
  if (capture_) {
    for (const auto& step : snapshot_->steps) {
      if (step->step <= cursor_.step) continue;
      const auto hit = stop_hit(*step);
      if (!hit) continue;
      go_to_hit(*hit, hit->result);
      return {};
    }
    say(Message::Kind::kInfo, "No stop holds of a step behind this one.");
    return {};
  }
  if (!impl_->worker) return {};
  impl_->follow = true;
  target_.reset();
  ++version_;
  impl_->reached = std::make_shared<Impl::Reached>();
  impl_->worker->post_watching(
      "running to a stop",
      [stops = stops_, info = snapshot_ ? snapshot_->info : nullptr, reached = impl_->reached](
          Session& session, const TraceRecorder& recorder) -> Result<void> {
        const auto known = info != nullptr ? info : session_info(session);
        auto ran = session.run_until([&](const Session& at) {
          const Cursor& c = at.cursor();
          if (c.layer >= 0 || c.op != 0 || c.after_layers || at.history().empty()) return false;
          const std::int64_t step = at.history().back().step;
          const auto summary = recorder.summary(step);
          if (summary == nullptr) return false;
          auto hit = first_hit(stops, *known, *summary, recorder.trace(step).get());
          if (!hit) return false;
          const std::lock_guard lock(reached->mutex);
          if (hit->result != nullptr) reached->result = *hit->result;
          hit->result = nullptr;
          reached->hit = std::move(hit);
          return true;
        });
        const std::lock_guard lock(reached->mutex);
        reached->ended = true;
        return ran ? Result<void>() : Result<void>(ran.error());
      });
  return {};
}

void Workbench::take_reached() {
  const auto reached = std::exchange(impl_->reached, nullptr);
  const std::lock_guard lock(reached->mutex);
  if (reached->hit) {
    go_to_hit(*reached->hit, reached->result ? &*reached->result : nullptr);
  } else if (reached->ended) {
    say(Message::Kind::kInfo, "No stop held of any step since.");
  }
}

Result<void> Workbench::back_to_stop() {
  if (auto ok = check_stops(); !ok) return ok;
  if (!snapshot_ || cursor_.step < 0) return {};
  const bool wants_trace =
      std::ranges::any_of(stops_, [](const Stop& s) { return s.on && s.condition.needs_trace(); });
  std::int64_t gone = 0;
  const auto& steps = snapshot_->steps;
  for (auto it = steps.rbegin(); it != steps.rend(); ++it) {
    const StepSummary& step = **it;
    if (!step.complete || step.step >= cursor_.step) continue;
    if (const auto hit = stop_hit(step)) {
      go_to_hit(*hit, hit->result);
      return {};
    }
    if (wants_trace && snapshot_->trace(step.step) == nullptr) ++gone;
  }
  std::string text = "No stop holds of a step before this one";
  if (gone > 0) {
    text += fmt::format(
        "; {} of them {} no longer kept, so that values and margins there are not known", gone,
        agree(gone, "is", "are"));
  }
  say(Message::Kind::kInfo, text + ".");
  return {};
}

}  // namespace attnscope
