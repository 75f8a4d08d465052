// A study of cache formats (app/reports/cache_study.h) on a thread of its own, of the scenario that
// is open.
//
//   run.begin(bench, {128, 2048});
//   if (run.poll()) ..               // once a frame: run.study() is another one
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
  bool poll();
  std::optional<double> running() const;  // share done
  const CacheStudy* study() const { return study_ ? &*study_ : nullptr; }
  const std::string& error() const { return error_; }  // of the last one that ended

 private:
  using Made = Result<CacheStudy>;
  std::shared_ptr<StudyProgress> progress_;
  std::future<Made> work_;
  std::vector<std::future<Made>> stopped_;  // that end by themselves
  std::optional<CacheStudy> study_;
  std::string error_;
};

}  // namespace attnscope
