#include "engine/session/lanes_ran.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "engine/io/plural.h"
#include "engine/session/session.h"

namespace attnscope {

std::vector<std::string> idle_lanes(std::span<const std::string> choices,
                                    std::span<const std::string> chosen, std::string_view merge,
                                    std::span<const StepRecord> steps) {
  std::set<as_op_id> ran;
  for (const StepRecord& step : steps) {
    for (const OpTiming& op : step.timings) ran.insert(op.op);
  }
  std::vector<std::string> idle;
  for (const std::string& choice : choices) {
    const std::string lane = choice.substr(choice.find('=') + 1);
    bool has = false, seen = lane == merge;
    for (std::size_t op = 0; op < chosen.size(); ++op) {
      if (chosen[op] != lane) continue;
      has = true;
      seen |= ran.contains(static_cast<as_op_id>(op));
    }
    // A later choice may have replaced all of it.
    if (has && !seen && std::ranges::find(idle, lane) == idle.end()) idle.push_back(lane);
  }
  return idle;
}

std::string idle_text(std::span<const std::string> lanes) {
  if (lanes.empty()) return "";
  return fmt::format("{} {} ran no op", agree(lanes.size(), "lane", "lanes"),
                     fmt::join(lanes, ", "));
}

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
