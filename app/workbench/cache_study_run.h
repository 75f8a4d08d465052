// A study of cache formats (app/reports/cache_study.h) on a thread of its own, of the scenario that
// is open.
//
//   run.begin(bench, {128, 2048});
//   run.poll();                      // once a frame: has_made() counts the studies that are there
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/reports/cache_study.h"
#include "app/workbench/workbench.h"

namespace attnscope {

class CacheStudyRun {
 public:
  CacheStudyRun() = default;
  ~CacheStudyRun() { stop(); }
  CacheStudyRun(CacheStudyRun&&) = delete;

  Result<void> begin(const Workbench& bench, std::vector<std::int64_t> lengths);
  // What there is stays; nothing comes of what runs.
  void stop();
  void poll();
  std::uint64_t has_made() const { return made_; }  // studies so far; study() is the last one
  std::optional<double> running() const;            // share done
  const CacheStudy* study() const { return study_ ? &*study_ : nullptr; }
  const std::string& error() const { return error_; }  // of the last one that ended

 private:
  using Made = Result<CacheStudy>;
  std::shared_ptr<StudyProgress> progress_;
  std::future<Made> work_;
  std::vector<std::future<Made>> stopped_;  // that end by themselves
  std::optional<CacheStudy> study_;
  std::string error_;
  std::uint64_t made_ = 0;
};

}  // namespace attnscope
