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
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "app/common/workbench.h"
#include "engine/capture/capture_diff.h"

namespace attnscope {

// Two captures and how they differ.
struct RunPair {
  std::shared_ptr<const Capture> a, b;
  std::string name_a, name_b;  // "run.acap", "the session, steps 3 to 9"
  CaptureDiff diff;
  // The worst of what lies beyond its tolerance, by step and layer of the first.
  std::map<std::pair<std::int64_t, int>, DiffVerdict> parted;
  // The worst difference of each op of the first: its place in diff.ops. By step, layer and op.
  std::map<std::tuple<std::int64_t, int, int>, std::size_t> worst;

  // Of an op of the first that ran; nothing where its step is not in the second.
  std::optional<DiffVerdict> verdict(const Place& place) const;
  // The worst of the op's differences; null where it is equal or not in both.
  const OpDiff* find(const Place& place) const;
  // First op beyond its tolerance whose place is behind `from`; null when there is none.
  const OpDiff* next(const Place& from) const;
  // What the whole says: where they part, or that they do not.
  std::string sentence() const;
};

// One token in both. Traces are null and rows -1 where it was not recorded.
struct ComparedToken {
  std::shared_ptr<const StepTrace> a, b;
  std::int32_t row_a = -1, row_b = -1;  // token rows of the steps
  std::int32_t request_a = -1, request_b = -1;
  std::int64_t position = -1;
};
// request and position: of the first; a position of -1 or one that is not in the step: the
// request's last row there, else the step's.
Result<ComparedToken> locate(const RunPair& comparison, std::int64_t step, std::int32_t request,
                             std::int64_t position);

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
