// Places that were visited, as a browser keeps pages: what was left by a jump is gone back to, and
// forward from there. Moves by one op, layer or step are none of its own.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "app/views/selection.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

struct Visit {
  Place place;
  Selection selection;
};

class PlaceHistory {
 public:
  // A jump away from there. What lay ahead is forgotten, and the oldest of more than kMost.
  void leave(const Visit& from);
  // Where back or forward lead; `now` is come back to by the opposite. Nothing: there is none.
  std::optional<Visit> back(const Visit& now);
  std::optional<Visit> forward(const Visit& now);
  bool has_back() const { return !behind_.empty(); }
  bool has_forward() const { return !ahead_.empty(); }
  void clear();

  static constexpr std::size_t kMost = 100;

 private:
  std::vector<Visit> behind_, ahead_;  // the nearest last
};

}  // namespace attnscope
