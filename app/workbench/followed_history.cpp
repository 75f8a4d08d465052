#include "app/workbench/followed_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "app/reports/steps_again.h"
#include "app/text/format.h"
#include "app/wiring/wiring.h"

namespace attnscope {

FollowedHistory::~FollowedHistory() { stop(); }

void FollowedHistory::stop() {
  if (state_) state_->stopped = true;
}

void FollowedHistory::forget() {
  stop();
  if (again_.valid()) stopped_.push_back(std::move(again_));
  state_.reset();
  values_.clear();
  seen_.clear();
  error_.clear();
  scan_.restart();
  ++version_;
}

void FollowedHistory::refresh(const Workbench& bench, const FollowedNumber& number) {
  std::shared_ptr<const Snapshot> now = bench.shared_snapshot();
  const bool same =
      held_ && held_->info == now->info && planted_ == bench.planted() && number_.same_as(number);
  const bool same_picture = now == held_;
  number_ = number;
  held_ = std::move(now);
  planted_ = bench.planted();
  if (!same) forget();
  take_again();
  if (!same || !same_picture) {
    take(*held_);
    count_missing(*held_);
  }
  const Capture* capture = bench.capture();
  if (capture == nullptr || number_words(number_.kind).of_op) return;
  if (same && !scan_.reading()) return;
  scan_.read_on(*capture, [&](const StepTrace& step) {
    seen_.insert(step.step);
    if (const auto value = number_in(*held_->info, step, number_)) values_[step.step] = *value;
  });
  missing_ = 0;
  ++version_;
}

// A trace stays true however often its step is replayed, so that a value is looked up once; the
// newest steps may still be growing.
void FollowedHistory::take(const Snapshot& snapshot) {
  const auto add = [&](std::int64_t step, const std::optional<NumberValue>& value) {
    seen_.insert(step);
    if (value) {
      values_[step] = *value;
    } else {
      values_.erase(step);
    }
  };
  if (number_words(number_.kind).of_op) {
    for (const auto& step : snapshot.steps) {
      if (!seen_.contains(step->step)) {
        if (const auto value = number_in(*step, number_)) values_[step->step] = *value;
      }
      if (step->complete) seen_.insert(step->step);
    }
  } else {
    for (const auto& step : snapshot.traces) {
      if (seen_.contains(step->step) && step->complete) continue;
      add(step->step, number_in(*snapshot.info, *step, number_));
      if (!step->complete) seen_.erase(step->step);
    }
  }
  ++version_;
}

void FollowedHistory::count_missing(const Snapshot& snapshot) {
  missing_ = std::ranges::count_if(snapshot.steps, [&](const auto& step) {
    return step->complete && !seen_.contains(step->step);
  });
}

Result<void> FollowedHistory::run_again(const Workbench& bench) {
  if (again_.valid()) return usage_error("they are running already", "wait for them, or stop them");
  if (bench.capture() != nullptr) return usage_error("a capture runs nothing", "open its scenario");
  if (!held_ || missing_ == 0) return usage_error("every step is known", "run further ones");
  std::int64_t last = 0;
  for (const auto& step : held_->steps) {
    if (step->complete && !seen_.contains(step->step)) last = std::max(last, step->step);
  }
  SessionOptions options = bench.options_beside();
  const bool compared = bench.setup().references != References::kNone;
  options.references =
      compared && number_words(number_.kind).reference ? References::kSim : References::kNone;
  state_ = std::make_shared<State>();
  error_.clear();
  again_ = std::async(
      std::launch::async,
      [state = state_, number = number_, last, options = std::move(options),
       later = bench.lanes_from(), scenario = bench.setup().scenario]() -> Result<Found> {
        try {
          Found found;
          const auto ok = steps_again(
              scenario, all_lanes(), options, later, last,
              [&](const SessionInfo& info, const StepTrace& step) {
                found.second.insert(step.step);
                if (const auto v = number_in(info, step, number)) found.first[step.step] = *v;
              },
              [&](double share) {
                state->share = share;
                return !state->stopped;
              });
          // What was found before it was stopped is true.
          if (!ok && !state->stopped) return ok.error();
          return found;
        } catch (const std::exception& e) {  // no memory, say
          return internal_error(fmt::format("it was given up: {}", e.what()));
        }
      });
  return {};
}

void FollowedHistory::take_again() {
  std::erase_if(stopped_, [](const auto& run) {
    return run.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  if (!again_.valid() || again_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return;
  }
  Result<Found> found = again_.get();
  state_.reset();
  ++version_;
  if (!found) {
    error_ = found.error().text();
    return;
  }
  for (const auto& [step, value] : found->first) {
    if (!seen_.contains(step)) values_[step] = value;
  }
  seen_.insert(found->second.begin(), found->second.end());
  count_missing(*held_);
}

std::optional<double> FollowedHistory::running_again() const {
  if (!again_.valid() || !state_) return std::nullopt;
  return state_->share.load();
}

std::string FollowedHistory::sentence(const Workbench& bench) const {
  const char* which = bench.capture() != nullptr ? "recorded" : "known";
  std::string text = history_sentence(values_, number_, bench.cursor().step, which) + scan_.rest();
  if (!error_.empty()) return text + " Running the others again failed: " + error_;
  if (missing_ > 0) {
    text += fmt::format(" The tensors of {} are gone: they can be run again.",
                        plural(missing_, "step", "steps"));
  }
  return text;
}

}  // namespace attnscope
