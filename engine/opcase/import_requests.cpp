#include "engine/opcase/import_requests.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

struct Run {
  std::size_t from = 0, to = 0;  // tokens
  std::int64_t first = 0;        // position
};

std::vector<Run> runs_of(const std::vector<std::int64_t>& positions,
                         const std::vector<std::int64_t>& slots, std::int64_t rows_per_block) {
  std::vector<Run> runs;
  for (std::size_t t = 0; t < positions.size(); ++t) {
    bool goes_on = t > 0 && positions[t] == positions[t - 1] + 1;
    if (goes_on && t < slots.size() && rows_per_block > 0 && slots[t] >= 0 && slots[t - 1] >= 0) {
      const bool same_page = positions[t] % rows_per_block != 0;
      goes_on = !same_page || slots[t] - 1 == slots[t - 1];
    }
    if (goes_on) {
      runs.back().to = t + 1;
    } else {
      runs.push_back({t, t + 1, positions[t]});
    }
  }
  return runs;
}

}  // namespace

void RequestsByPosition::know(const std::vector<std::int64_t>& positions,
                              const std::vector<std::int32_t>& requests) {
  for (std::size_t t = 0; t < positions.size(); ++t) {
    const auto request = to_size(requests[t]);
    if (next_.size() <= request) next_.resize(request + 1, 0);
    next_[request] = positions[t] + 1;
  }
}

Result<std::vector<std::int32_t>> RequestsByPosition::assign(
    std::int64_t step, const std::vector<std::int64_t>& positions,
    const std::vector<std::int64_t>& slots, std::int64_t rows_per_block) {
  const std::vector<Run> runs = runs_of(positions, slots, rows_per_block);
  std::vector<std::int32_t> out(positions.size(), 0);
  const std::size_t known = next_.size();
  std::int64_t last = -1;  // request of the run before
  for (const Run& run : runs) {
    std::vector<std::int64_t> goes_on;
    for (std::size_t r = 0; r < known; ++r) {
      if (next_[r] == run.first && to_count(r) > last) goes_on.push_back(to_count(r));
    }
    const auto alike = std::ranges::count(runs, run.first, &Run::first);
    std::int64_t request = -1;
    if (goes_on.size() == 1 || (!goes_on.empty() && to_count(goes_on.size()) <= alike)) {
      request = goes_on.front();  // in the order of the steps before
    } else if (known == 0 || (run.first == 0 && goes_on.empty())) {
      request = to_count(next_.size());
    } else if (goes_on.empty() && known == 1 && runs.size() == 1 && run.first > next_[0]) {
      request = 0;  // steps in between were not dumped
    }
    if (request < 0) {
      return bad_input(
          fmt::format("step {}: tokens from {} on have positions from {} on, and {}", step,
                      run.from, run.first,
                      goes_on.empty() ? "no request of the steps before ended there"
                                      : "several requests of the steps before ended there"),
          "say whose they are: \"token_to_req\" in the map, beside \"ops\", names a tensor with "
          "the "
          "request of each token");
    }
    last = request;
    if (to_count(next_.size()) <= request) next_.resize(to_size(request + 1), 0);
    next_[to_size(request)] = run.first + to_count(run.to - run.from);
    std::fill(out.begin() + to_count(run.from), out.begin() + to_count(run.to),
              static_cast<std::int32_t>(request));
  }
  told_apart_ |= next_.size() > 1;
  return out;
}

std::string RequestsByPosition::note() const {
  if (!told_apart_) return "";
  return fmt::format(
      "{} requests are told apart by the positions of their tokens; \"token_to_req\" in the map "
      "names "
      "a tensor that says it",
      next_.size());
}

}  // namespace attnscope
