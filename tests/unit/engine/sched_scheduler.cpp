// Chunked prefill, first come first served, admission by reservation.
#include <gtest/gtest.h>

#include "engine/sched/scheduler.h"

namespace attnscope {
namespace {

using Ids = std::vector<std::int32_t>;

// One full group with blocks of 16 tokens: demand = ceil(max_len / 16).
CacheLayout full16() {
  CacheLayout layout;
  CacheGroup g;
  g.block_tokens = 16;
  layout.groups.push_back(g);
  return layout;
}

Request request(std::int64_t prompt, std::int64_t max_new) {
  Request r;
  r.tokens.assign(static_cast<std::size_t>(prompt), 65);
  r.prompt_tokens = prompt;
  r.max_new_tokens = max_new;
  return r;
}

// One step; every request that reached its last token samples 7. Returns what was scheduled.
Ids step(Scheduler& s, Ids* finished = nullptr) {
  const Ids live = s.live();
  const Ids scheduled = s.schedule();
  EXPECT_EQ(s.live(), live) << "admission keeps the order of live()";
  Ids sampled(live.size(), -1);
  for (std::size_t i = 0; i < live.size(); ++i) {
    const Request& r = s.request(live[i]);
    if (scheduled[i] > 0 && r.computed + scheduled[i] == r.num_tokens()) sampled[i] = 7;
  }
  const Ids done = s.advance(live, scheduled, sampled);
  if (finished != nullptr) *finished = done;
  return scheduled;
}

TEST(Scheduler, ChunksPrefillUnderTheBudget) {
  Scheduler s(full16(), {1024, 8}, 1000);
  for (int i = 0; i < 3; ++i) s.add(request(800, 4));
  EXPECT_EQ(step(s), (Ids{800, 224, 0}));
  EXPECT_EQ(s.requests()[2].state, RequestState::kWaiting);
  EXPECT_EQ(step(s), (Ids{1, 576, 447}));  // decode, then the rest of the chunk, then the third
  EXPECT_EQ(step(s), (Ids{1, 1, 353}));
  EXPECT_EQ(step(s), (Ids{1, 1, 1}));
}

TEST(Scheduler, SamplesAppendAndFinish) {
  Scheduler s(full16(), {64, 8}, 100);
  s.add(request(10, 3));
  s.add(request(5, 1));
  EXPECT_TRUE(s.requests()[0].in_prefill());
  Ids finished;
  EXPECT_EQ(step(s, &finished), (Ids{10, 5}));
  EXPECT_EQ(finished, (Ids{1}));
  EXPECT_EQ(s.requests()[1].tokens.back(), 7);
  EXPECT_EQ(s.requests()[1].state, RequestState::kFinished);
  EXPECT_FALSE(s.requests()[0].in_prefill());
  EXPECT_EQ(s.live(), (Ids{0}));
  EXPECT_EQ(step(s, &finished), (Ids{1}));
  EXPECT_TRUE(finished.empty());
  EXPECT_FALSE(s.done());
  EXPECT_EQ(step(s, &finished), (Ids{1}));
  EXPECT_EQ(finished, (Ids{0}));
  EXPECT_EQ(s.requests()[0].num_tokens(), 13);
  EXPECT_EQ(s.requests()[0].computed, 12);  // the last token is never computed
  EXPECT_TRUE(s.done());
  EXPECT_TRUE(s.schedule().empty());
}

TEST(Scheduler, IdsAndPromptLengthAreSetOnArrival) {
  Scheduler s(full16(), {64, 8}, 100);
  Request r = request(10, 3);
  r.prompt_tokens = 0;
  r.id = 77;
  s.add(r);
  s.add(r);
  EXPECT_EQ(s.live(), (Ids{0, 1}));
  EXPECT_EQ(s.requests()[1].id, 1);
  EXPECT_EQ(s.requests()[1].max_len(), 13);
}

TEST(Scheduler, NoTokenSampledEndsTheRequest) {
  Scheduler s(full16(), {64, 8}, 100);
  s.add(request(10, 3));
  const Ids live = s.live();
  const Ids scheduled = s.schedule();
  EXPECT_EQ(s.advance(live, scheduled, {-1}), (Ids{0}));
  EXPECT_EQ(s.requests()[0].num_tokens(), 10);
  EXPECT_TRUE(s.done());
}

TEST(Scheduler, UnfinishedChunkSamplesNothing) {
  Scheduler s(full16(), {4, 8}, 100);
  s.add(request(10, 3));
  const Ids live = s.live();
  const Ids scheduled = s.schedule();
  EXPECT_EQ(scheduled, (Ids{4}));
  EXPECT_TRUE(s.advance(live, scheduled, {9}).empty());
  EXPECT_EQ(s.requests()[0].num_tokens(), 10);
  EXPECT_EQ(s.requests()[0].computed, 4);
}

TEST(Scheduler, AdmitsOnlyWhatFitsBesideReservations) {
  // Demands: 4, 5, 2 of 8 blocks. The second does not fit beside the first, and the third must not
  // overtake it.
  Scheduler s(full16(), {512, 8}, 8);
  s.add(request(60, 4));
  s.add(request(70, 4));
  s.add(request(20, 4));
  EXPECT_EQ(s.demand(s.requests()[0]), 4);
  EXPECT_EQ(s.demand(s.requests()[1]), 5);
  EXPECT_EQ(step(s), (Ids{60, 0, 0}));
  EXPECT_EQ(step(s), (Ids{1, 0, 0}));
  EXPECT_EQ(step(s), (Ids{1, 0, 0}));
  EXPECT_EQ(step(s), (Ids{1, 0, 0}));  // the fourth token ends it
  EXPECT_EQ(s.live(), (Ids{1, 2}));
  EXPECT_EQ(step(s), (Ids{70, 20}));
}

TEST(Scheduler, ExactFitIsAdmitted) {
  Scheduler s(full16(), {512, 8}, 8);
  s.add(request(60, 4));
  s.add(request(60, 4));
  EXPECT_EQ(step(s), (Ids{60, 60}));
}

TEST(Scheduler, RunsAtMostMaxRequests) {
  Scheduler s(full16(), {512, 2}, 100);
  for (int i = 0; i < 3; ++i) s.add(request(10, 2));
  EXPECT_EQ(step(s), (Ids{10, 10, 0}));
  EXPECT_EQ(step(s), (Ids{1, 1, 0}));
  EXPECT_EQ(s.live(), (Ids{2}));
  EXPECT_EQ(step(s), (Ids{10}));
}

TEST(Scheduler, BudgetGoesToRunningFirst) {
  Scheduler s(full16(), {2, 8}, 100);
  for (int i = 0; i < 3; ++i) s.add(request(1, 8));
  EXPECT_EQ(step(s), (Ids{1, 1, 0}));
  EXPECT_EQ(step(s), (Ids{1, 1, 0}));  // the third waits until there is budget
  EXPECT_EQ(s.requests()[2].state, RequestState::kWaiting);
}

TEST(Scheduler, CopyIsACheckpoint) {
  Scheduler s(full16(), {8, 8}, 100);
  s.add(request(20, 4));
  step(s);
  const Scheduler checkpoint = s;
  step(s);
  step(s);
  Scheduler replay = checkpoint;
  EXPECT_EQ(replay.requests()[0].computed, 8);
  EXPECT_EQ(step(replay), (Ids{8}));
  EXPECT_EQ(step(replay), (Ids{4}));
  EXPECT_EQ(replay.requests()[0].tokens, s.requests()[0].tokens);
}

// A running request never runs out of blocks: demands are what the manager can hold at most.
TEST(Scheduler, ReservationIsEnoughForTheManager) {
  const CacheLayout layout = build_cache_layout(*preset("tiny"));
  for (const std::int64_t budget : {1, 7, 64, 129, 512}) {
    const std::int64_t usable = layout.demand(700, budget) + layout.demand(300, budget);
    Scheduler s(layout, {budget, 8}, usable);
    s.add(request(690, 10));
    s.add(request(260, 40));
    s.add(request(500, 20));
    s.add(request(3, 30));
    auto blocks = make_block_manager(layout, usable + 1);
    int steps = 0;
    while (!s.done()) {
      ASSERT_LT(++steps, 5000);
      const Ids live = s.live();
      const Ids scheduled = s.schedule();
      Ids sampled(live.size(), -1);
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < live.size(); ++i) {
        const Request& r = s.request(live[i]);
        sum += scheduled[i];
        if (scheduled[i] == 0) continue;
        ASSERT_TRUE(blocks->allocate(live[i], r.computed, r.computed + scheduled[i]));
        if (r.computed + scheduled[i] == r.num_tokens()) sampled[i] = 1;
      }
      ASSERT_GT(sum, 0);
      ASSERT_LE(sum, budget);
      for (std::int32_t id : s.advance(live, scheduled, sampled)) blocks->free(id);
    }
    EXPECT_EQ(blocks->num_free(), usable);
  }
}

}  // namespace
}  // namespace attnscope
