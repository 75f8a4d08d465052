#include "app/workbench/place_history.h"

#include <utility>

namespace attnscope {
namespace {

std::optional<Visit> turn(std::vector<Visit>& from, std::vector<Visit>& to, const Visit& now) {
  // Who stands there already goes one further.
  while (!from.empty() && from.back().place == now.place) from.pop_back();
  if (from.empty()) return std::nullopt;
  Visit visit = std::move(from.back());
  from.pop_back();
  to.push_back(now);
  return visit;
}

}  // namespace

void PlaceHistory::leave(const Visit& from) {
  ahead_.clear();
  if (!behind_.empty() && behind_.back().place == from.place) behind_.pop_back();
  behind_.push_back(from);
  if (behind_.size() > kMost) behind_.erase(behind_.begin());
}

std::optional<Visit> PlaceHistory::back(const Visit& now) { return turn(behind_, ahead_, now); }

std::optional<Visit> PlaceHistory::forward(const Visit& now) { return turn(ahead_, behind_, now); }

void PlaceHistory::clear() {
  behind_.clear();
  ahead_.clear();
}

}  // namespace attnscope
