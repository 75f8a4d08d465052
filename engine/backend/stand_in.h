// How a lane says that another one carried out an op in its place: what a plugin failed at is not
// an error of the call, and yet the result is not the plugin's.
//
//   StandInWatch watch;
//   call_op(function, params, call);
//   if (watch.seen()) .. watch.seen()->lane->name, watch.seen()->why ..
#pragma once

#include <optional>
#include <string>

#include "kernels/params/lane_table.h"

namespace attnscope {

struct StandIn {
  const Lane* lane = nullptr;  // that carried it out; outlives the lane it stands in for
  std::string why;             // a sentence without its full stop
};

// Of the calls on this thread while it lives; the innermost one sees them.
class StandInWatch {
 public:
  StandInWatch();
  ~StandInWatch();
  StandInWatch(const StandInWatch&) = delete;
  StandInWatch& operator=(const StandInWatch&) = delete;

  const std::optional<StandIn>& seen() const { return seen_; }

 private:
  friend void note_stand_in(StandIn stand_in);
  StandInWatch* outer_;
  std::optional<StandIn> seen_;
};

// Nothing where nobody watches.
void note_stand_in(StandIn stand_in);

}  // namespace attnscope
