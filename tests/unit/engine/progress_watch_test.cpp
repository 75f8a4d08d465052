// Sessions that would go on for ever end with an error; those that get on slowly do not.
#include "engine/session/progress_watch.h"

#include <gtest/gtest.h>

#include <string>

namespace attnscope {
namespace progress_watch_test {

class Progress : public ::testing::Test {
 protected:
  Progress() : requests_(2) {
    for (std::size_t i = 0; i < 2; ++i) {
      requests_[i].name = i == 0 ? "a" : "b";
      requests_[i].tokens.resize(100);
      requests_[i].state = RequestState::kRunning;
    }
  }
  // Steps with so many tokens until an error; the number of steps without one.
  int steps(int most, std::int64_t tokens) {
    for (int i = 0; i < most; ++i) {
      const auto ok = watch_.step_done(step_++, tokens, requests_, 39);
      if (ok) continue;
      said_ = ok.error().text();
      return i;
    }
    return most;
  }
  // They take each other's blocks: what was computed is gone, and is computed again.
  int take_turns(int most) {
    for (int i = 0; i < most; ++i) {
      Request &out = requests_[to_size(i % 2)], &in = requests_[to_size(1 - i % 2)];
      out.computed = 0;
      ++out.preemptions;
      out.state = RequestState::kPreempted;
      in.computed = 60;
      in.state = RequestState::kRunning;
      if (steps(1, 60) == 0) return i;
    }
    return most;
  }
  static std::size_t to_size(int i) { return static_cast<std::size_t>(i); }

  ProgressWatch watch_;
  std::vector<Request> requests_;
  std::int64_t step_ = 0;
  std::string said_;
};

TEST_F(Progress, StepsWithoutTokensEnd) {
  const int idle = steps(1000, 0);
  EXPECT_LT(idle, 100);
  EXPECT_GT(idle, 10) << "blocks that are freed late come back";
  EXPECT_NE(said_.find("gets no further at step"), std::string::npos) << said_;
  EXPECT_NE(said_.find("\"a\" of 100 tokens is running, the pool has 39 blocks; raise pool_blocks"),
            std::string::npos)
      << said_;
}

TEST_F(Progress, RequestsThatTakeEachOthersBlocksEnd) {
  EXPECT_LT(take_turns(1000), 40);
  EXPECT_NE(said_.find("requests have taken each other's blocks "), std::string::npos) << said_;
}

TEST_F(Progress, WhatGetsFurtherGoesOn) {
  for (int round = 0; round < 40; ++round) {
    EXPECT_EQ(take_turns(8), 8) << round;
    requests_[0].computed = 61 + round;
    EXPECT_EQ(steps(1, 1), 1) << said_;
    EXPECT_EQ(steps(30, 0), 30) << said_;
  }
}

TEST_F(Progress, AnAbortAheadIsWaitedFor) {
  requests_[1].abort_step = 500;
  EXPECT_GE(steps(2000, 0), 500);
  EXPECT_NE(said_, "");
}

TEST_F(Progress, GoingBackBeginsAnew) {
  requests_[0].computed = 90;
  EXPECT_EQ(steps(40, 0), 40);
  step_ = 3;
  requests_[0].computed = 10;
  EXPECT_EQ(steps(40, 0), 40) << said_;
  step_ = 3;
  EXPECT_EQ(steps(40, 0), 40) << said_;
}

}  // namespace progress_watch_test
}  // namespace attnscope
