// Work that makes one report, on a thread of its own.
//
//   ReportRun<CacheStudy> run;
//   run.begin([=](StudyProgress& progress) { return study_cache_formats(.., &progress); });
//   run.poll();                      // once a frame: has_made() counts the reports that are there
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/reports/study_progress.h"
#include "kernels/params/result.h"

namespace attnscope {

// Progress: what the work tells how far it is, and asks whether it shall end.
template <class T, class Progress = StudyProgress>
class ReportRun {
 public:
  using Work = std::function<Result<T>(Progress&)>;

  ReportRun() = default;
  ~ReportRun() { stop(); }
  ReportRun(ReportRun&&) = delete;

  // Whether another one may begin: an error where one runs. `what` runs, `command` stops it.
  Result<void> is_free(const char* what, const char* command) {
    // Its panel may be closed, and nobody may have asked since it ended.
    poll();
    if (!runs()) return {};
    return usage_error(fmt::format("a {} is running already", what),
                       fmt::format("wait for it, or stop it: {}", command));
  }
  // Nothing must be running.
  void begin(Work work) {
    progress_ = std::make_shared<Progress>();
    work_ = std::async(std::launch::async,
                       [work = std::move(work), progress = progress_]() -> Result<T> {
                         try {
                           return work(*progress);
                         } catch (const std::exception& e) {  // no memory, say
                           return internal_error(fmt::format("it was given up: {}", e.what()));
                         }
                       });
  }
  // What there is stays; nothing comes of what runs.
  void stop() {
    if (progress_) progress_->stopped = true;
    if (work_.valid()) stopped_.push_back(std::move(work_));
    progress_.reset();
  }
  void poll() {
    std::erase_if(stopped_, ready);
    if (!work_.valid() || !ready(work_)) return;
    Result<T> made = work_.get();
    progress_.reset();
    error_.clear();
    if (made) {
      report_ = std::move(*made);
      ++made_;
    } else {
      error_ = made.error().text();
    }
  }
  bool runs() const { return work_.valid(); }
  std::uint64_t has_made() const { return made_; }  // reports so far; report() is the last one
  std::optional<double> running() const {           // share done
    if (!work_.valid() || !progress_) return std::nullopt;
    return progress_->share();
  }
  const T* report() const { return report_ ? &*report_ : nullptr; }
  const std::string& error() const { return error_; }  // of the last one that ended

 private:
  static bool ready(const std::future<Result<T>>& run) {
    return run.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  std::shared_ptr<Progress> progress_;
  std::future<Result<T>> work_;
  std::vector<std::future<Result<T>>> stopped_;  // that end by themselves
  std::optional<T> report_;
  std::string error_;
  std::uint64_t made_ = 0;
};

}  // namespace attnscope
