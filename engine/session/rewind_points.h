// The rewind points of a session within a budget of memory. When it is full, the one goes whose
// neighbours are closest together: what stays is spread over all steps, so that going back anywhere
// replays a bounded number of them however long the session runs.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/session/rewind_point.h"

namespace attnscope {

class RewindPoints {
 public:
  explicit RewindPoints(std::int64_t budget) : budget_(budget) {}

  // Not when has(c->step). The first step's stays whatever the budget is; any other may go at once
  // where there is no room for it.
  void add(std::unique_ptr<RewindPoint> c);
  bool has(std::int64_t step) const;
  // The newest one that is not after `step`; null when there is none.
  const RewindPoint* at_or_before(std::int64_t step) const;
  // The oldest one after `step`; null when there is none.
  const RewindPoint* after(std::int64_t step) const;
  void drop_after(std::int64_t step);
  void set_budget(std::int64_t bytes);

  const std::vector<std::unique_ptr<RewindPoint>>& all() const { return all_; }  // by step
  std::int64_t bytes() const { return bytes_; }
  std::int64_t budget() const { return budget_; }
  // Steps that going to any of the first `steps` replays at most.
  std::int64_t longest_replay(std::int64_t steps) const;

 private:
  void remove(std::size_t place);
  void thin_out();

  std::int64_t budget_;
  std::int64_t bytes_ = 0;
  std::vector<std::unique_ptr<RewindPoint>> all_;
  std::unordered_map<const KeptBlock*, std::int32_t> holders_;  // rewind points that hold the block
};

// About what the state of requests and scheduler takes in memory.
std::int64_t serving_bytes(const Serving& serving);

}  // namespace attnscope
