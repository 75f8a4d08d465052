#include "engine/session/lanes_ran.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace attnscope {

bool another_stood_in(const std::vector<std::string>& chosen, const LaneSelector& now) {
  for (std::size_t op = 0; op < chosen.size(); ++op) {
    if (chosen[op] != now.lane(static_cast<as_op_id>(op))) return true;
  }
  return false;
}

LanesRan::LanesRan(std::vector<std::string> chosen)
    : last_(std::move(chosen)), ran_(last_.size()) {}

void LanesRan::add(std::span<const TapResult> results) {
  for (const TapResult& result : results) {
    const auto op = static_cast<std::size_t>(result.op);
    if (result.lane.empty() || op >= last_.size()) continue;  // not of what a lane wrote
    if (std::ranges::count(ran_[op], result.lane) == 0) ran_[op].push_back(result.lane);
    last_[op] = result.lane;
  }
}

std::string LanesRan::description() const {
  std::vector<std::string> names = last_;
  for (std::size_t op = 0; op < names.size(); ++op) {
    if (!ran_[op].empty()) {
      names[op] = fmt::format("{}", fmt::join(ran_[op], " then "));
    } else if (names[op].find(':') != std::string::npos) {
      names[op] += " (did not run)";  // a bug or a kernel that was to be seen
    }
  }
  return describe_lanes(names);
}

}  // namespace attnscope
