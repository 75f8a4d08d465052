// Whether what has drifted on the free-running history may have: a layer's output is held to a
// limit, but not where the engine and ref.sim, each on its own history, have selected other entries
// by near ties. From there on the layer, and those behind it, read other rows.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/trace/tap_result.h"

namespace attnscope {

class DriftWatch {
 public:
  // What is past near ties may be off so many times the limit: they move an output, and do not
  // replace it.
  static constexpr double kPastNearTies = 10;

  explicit DriftWatch(double limit) : limit_(limit) {}

  // Each result, in causal order.
  void add(const TapResult& result);
  // Whether an output of the layer, in the step added last, that is so far off has drifted beyond
  // what it may.
  bool beyond(int layer, double cosine) const;
  // Whether near ties, and no other differences of selections, lie before it.
  bool past_near_ties(int layer) const;

 private:
  static constexpr int kNone = std::numeric_limits<int>::max();
  // First layers whose selections parted, by near ties or otherwise.
  struct Parted {
    int by_ties = kNone, otherwise = kNone;
  };

  double limit_;
  std::int64_t step_ = -1;
  Parted before_, now_;  // in steps before, in this one
  // Of the scores compared last.
  int scores_layer_ = kNone;
  double scores_ = std::numeric_limits<double>::infinity();
};

}  // namespace attnscope
