// A capture beside what the workbench shows, another capture or the steps that a session keeps.
// The comparison runs on a thread of its own; afterwards one cursor walks through both: a place and
// a token of the first, and where the second computed the same token.
//
//   CompareSession compare;
//   compare.open(bench, "other.acap");        // then poll() until !running()
//   compare.result()->diff.first->text;  locate(*compare.result(), 7, 0, 2050)
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <string>

#include "app/views/run_pair.h"
#include "app/workbench/workbench.h"

namespace attnscope {

class CompareSession {
 public:
  CompareSession() = default;
  ~CompareSession();
  CompareSession(const CompareSession&) = delete;
  CompareSession& operator=(const CompareSession&) = delete;

  // Errors leave what is open as it is.
  Result<void> open(const Workbench& bench, const std::string& path);
  // While it runs it is stopped, and what it had found is not kept.
  void close();
  // Picks up what the thread has made; true when anything changed.
  bool poll();
  void wait();

  bool running() const { return work_.valid(); }
  double progress() const { return state_ ? state_->share.load() : 0; }
  const std::string& path() const { return path_; }    // of the second
  const std::string& error() const { return error_; }  // of the last comparison, else empty
  const std::shared_ptr<const RunPair>& result() const { return result_; }
  std::uint64_t version() const { return version_; }  // another number once something changed

 private:
  struct State {
    std::atomic<double> share{0};
    std::atomic<bool> stopped{false};
  };
  std::string path_, error_;
  std::shared_ptr<State> state_;
  std::shared_ptr<const RunPair> result_;
  std::future<Result<std::shared_ptr<const RunPair>>> work_;
  std::uint64_t version_ = 1;
};

}  // namespace attnscope
