// How far work is that takes seconds or minutes, for others to look at, and whether it shall end.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/io/stopped.h"

namespace attnscope {

struct StudyProgress {
  std::atomic<double> done = 0;  // share
  std::atomic<bool> stopped = false;

  double share() const { return done; }
};

// Counts what is done of `all`. progress: nullptr = nobody looks.
class StudySteps {
 public:
  StudySteps(StudyProgress* progress, std::int64_t all) : progress_(progress), all_(all) {}
  // One more is. An error where somebody has stopped it.
  Result<void> step() {
    if (progress_ == nullptr) return {};
    progress_->done = static_cast<double>(++done_) / static_cast<double>(all_);
    if (!progress_->stopped) return {};
    return stopped_error();
  }

 private:
  StudyProgress* progress_;
  std::int64_t done_ = 0, all_;
};

}  // namespace attnscope
