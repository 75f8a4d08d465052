// The history of one number over all steps of what is shown. Of a capture every step is read, in
// slices of time; of a session what is kept is there at once, and the steps whose tensors are gone
// are run again when that is asked for, on a thread of its own.
//
//   history.refresh(bench, number);             // once a frame
//   if (history.missing() > 0) history.run_again(bench);
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/views/number_history.h"
#include "app/workbench/capture_scan.h"
#include "app/workbench/workbench.h"

namespace attnscope {

class FollowedHistory {
 public:
  FollowedHistory() = default;
  ~FollowedHistory();
  FollowedHistory(FollowedHistory&&) = delete;

  void refresh(const Workbench& bench, const FollowedNumber& number);
  const NumberHistory& values() const { return values_; }
  std::uint64_t version() const { return version_; }  // grows with every change of values
  // One line: the number, its range, how far the steps are known.
  std::string sentence(const Workbench& bench) const;
  // More is coming: of a capture, or of steps that run again.
  bool reading() const { return scan_.reading() || again_.valid(); }
  // Steps that ran and whose value is not known, because their tensors are gone.
  std::int64_t missing() const { return missing_; }
  Result<void> run_again(const Workbench& bench);
  std::optional<double> running_again() const;  // share done
  void stop();

 private:
  struct State {
    std::atomic<double> share{0};
    std::atomic<bool> stopped{false};
  };
  using Found = std::pair<NumberHistory, std::set<std::int64_t>>;  // values, steps looked at
  void forget();
  void take(const Snapshot& snapshot);
  void take_again();
  void count_missing(const Snapshot& snapshot);

  FollowedNumber number_;
  std::shared_ptr<const Snapshot> held_;
  std::string planted_;
  CaptureScan scan_;  // of a capture
  NumberHistory values_;
  std::set<std::int64_t> seen_;  // steps that were looked at, whether they have a value or not
  std::int64_t missing_ = 0;
  std::uint64_t version_ = 1;
  std::string error_;  // of steps that were run again
  std::shared_ptr<State> state_;
  std::future<Result<Found>> again_;
  std::vector<std::future<Result<Found>>> stopped_;  // that end by themselves
};

}  // namespace attnscope
