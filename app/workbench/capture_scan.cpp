#include "app/workbench/capture_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "app/text/format.h"

namespace attnscope {
namespace {

// Of one call; a frame of 60 a second has 16 ms.
constexpr auto kReadTime = std::chrono::milliseconds(8);

}  // namespace

void CaptureScan::restart() { *this = {}; }

void CaptureScan::read_on(const Capture& capture, const std::function<void(const StepTrace&)>& see,
                          std::int64_t last) {
  using Clock = std::chrono::steady_clock;
  const auto& summaries = capture.summaries();
  const auto beyond = std::ranges::upper_bound(summaries, last, {},
                                               [](const auto& summary) { return summary->step; });
  all_ = static_cast<std::size_t>(beyond - summaries.begin());
  for (const auto end = Clock::now() + kReadTime; next_ < all_ && Clock::now() < end; ++next_) {
    const auto trace = capture.trace(summaries[next_]->step);
    if (!trace) {
      if (problem_.empty()) problem_ = trace.error().text();
    } else if (*trace) {
      ++seen_;
      see(**trace);
    }
  }
}

std::string CaptureScan::steps() const {
  const auto all = static_cast<std::int64_t>(all_);
  if (seen_ == all) {
    return all == 1 ? "the recorded step" : fmt::format("the {} recorded steps", format_count(all));
  }
  return fmt::format("{} of {} recorded steps", format_count(seen_), format_count(all));
}

std::string CaptureScan::rest() const {
  if (reading()) return fmt::format(" {} of {} steps are read.", next_, all_);
  return problem_.empty() ? "" : " " + problem_;
}

}  // namespace attnscope
