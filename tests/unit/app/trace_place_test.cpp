// Going to ops by name, and the bytes of blocks.
#include <algorithm>
#include <cstring>

#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/session/place.h"
#include "engine/session/step/layer_ops.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace trace_place_test {

std::vector<Place> places(const Session& session) {
  std::vector<Place> out;
  for (const StepRecord& step : session.history()) {
    for (const OpTiming& t : step.timings) out.push_back({step.step, t.layer, t.op});
  }
  return out;
}

TEST(TracePlace, EveryOpCanBeReachedFromAnywhere) {
  auto session = small_session();
  EXPECT_EQ(last_place(*session).step, -1);
  run_steps(*session, 5);
  const std::vector<Place> all = places(*session);
  ASSERT_GT(all.size(), 300u);
  EXPECT_EQ(last_place(*session), all.back());
  // Forward by one, back by one, and far jumps.
  for (const std::size_t i : {0u, 1u, 2u, 1u, 5u, 4u, 200u, 199u, 201u, 60u, 64u, 330u, 0u}) {
    const auto ok = go_to(*session, all[i]);
    ASSERT_TRUE(ok) << ok.error().text();
    EXPECT_EQ(last_place(*session), all[i]) << i;
    EXPECT_TRUE(session->ran_any());
    EXPECT_EQ(session->last_params().op(), all[i].op);
  }
  for (const Place& place : all) {
    ASSERT_TRUE(go_to(*session, place));
    ASSERT_EQ(last_place(*session), place);
  }
}

// Counts ops and the steps they belong to.
class Counter : public SessionObserver {
 public:
  void op_done(const Session&) override { ++ops; }
  void step_done(const Session&) override {}
  void went_back(const Session&) override { ++back; }
  int ops = 0, back = 0;
};

TEST(TracePlace, GoingForwardRunsOnlyWhatLiesBetween) {
  auto session = small_session();
  run_steps(*session, 2);
  Counter counter;
  ASSERT_TRUE(go_to(*session, {2, -1, AS_OP_SLOT_MAPPING}));
  session->set_observer(&counter);
  ASSERT_TRUE(go_to(*session, {2, -1, AS_OP_SWA_INDEX}));
  EXPECT_EQ(counter.ops, 1);
  ASSERT_TRUE(go_to(*session, {2, -1, AS_OP_SWA_INDEX}));
  EXPECT_EQ(counter.ops, 1);
  EXPECT_EQ(counter.back, 0);
  ASSERT_TRUE(go_to(*session, {2, 0, AS_OP_Q_KV_A_PROJ}));
  EXPECT_EQ(counter.back, 0);
  EXPECT_EQ(counter.ops, 4);
  ASSERT_TRUE(go_to(*session, {2, 0, AS_OP_ATTN_NORM}));
  EXPECT_EQ(counter.back, 1);
}

TEST(TracePlace, WhatDoesNotExistIsNamed) {
  auto session = small_session();
  run_steps(*session, 1);
  const std::uint64_t digest = session->digest();
  const auto message = [&](const Place& place) {
    const auto ok = go_to(*session, place);
    EXPECT_FALSE(ok);
    EXPECT_EQ(ok ? AS_OK : ok.error().code, AS_BAD_INPUT);
    return ok ? std::string() : ok.error().text();
  };
  EXPECT_NE(message({0, 17, AS_OP_WO_A}).find("layer 17 does not run"), std::string::npos);
  int swa = -1;
  for (int i = 0; i < session->parts().config.num_layers(); ++i) {
    if (type_of_layer(session->parts().config, i) == LayerType::kSwa) {
      swa = session->parts().config.layers[static_cast<std::size_t>(i)];
    }
  }
  ASSERT_GE(swa, 0);
  EXPECT_NE(message({0, swa, AS_OP_INDEXER_TOPK}).find("a SWA layer has no such op"),
            std::string::npos);
  EXPECT_NE(message({0, -1, AS_OP_WO_A}).find("outside the layers run: schedule"),
            std::string::npos);
  EXPECT_NE(message({-1, -1, AS_OP_SCHEDULE}).find("no step -1"), std::string::npos);
  EXPECT_EQ(session->digest(), digest);  // nothing moved
  EXPECT_EQ(session->cursor().step, 1);
  // "long" is still in prefill and alone: nobody samples in step 0.
  EXPECT_NE(message({0, -1, AS_OP_SAMPLE}).find("no request reaches"), std::string::npos);
  EXPECT_NE(message({1000, -1, AS_OP_SCHEDULE}).find("every request is finished"),
            std::string::npos);
  EXPECT_TRUE(go_to(*session, {0, -1, AS_OP_SCHEDULE}));
}

TEST(TracePlace, StepEndsAreReachedByRunningTheStep) {
  auto session = small_session();
  TraceRecorder recorder;
  run_steps(*session, 7);
  session->set_observer(&recorder);
  // 3 and 6 have checkpoints right behind the steps asked for, which must not be jumped to.
  for (const std::int64_t step : {2, 5, 4, 0, 6, 6, 7}) {
    ASSERT_TRUE(go_to_step_end(*session, step));
    EXPECT_EQ(session->cursor(), (Cursor{step + 1, -1, 0, false}));
    EXPECT_TRUE(session->ran_any());
    const auto traces = recorder.traces();
    EXPECT_TRUE(std::ranges::any_of(traces, [&](const auto& t) {
      return t->step == step && t->complete;
    })) << step;
  }
  ASSERT_TRUE(go_to(*session, {4, 2, AS_OP_ATTN_NORM}));
  ASSERT_TRUE(go_to_step_end(*session, 4));  // from inside
  EXPECT_EQ(session->cursor(), (Cursor{5, -1, 0, false}));
  EXPECT_FALSE(go_to_step_end(*session, -1));
  const auto beyond = go_to_step_end(*session, 1000);
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().text().find("no step 1000"), std::string::npos);
  const auto last = static_cast<std::int64_t>(session->history().size()) - 1;
  EXPECT_FALSE(go_to_step_end(*session, last + 1));
  EXPECT_TRUE(go_to_step_end(*session, last));
}

TEST(TracePlace, CancelledMovesEndWithoutAnError) {
  auto session = small_session();
  run_steps(*session, 2);
  session->cancel();
  EXPECT_TRUE(go_to(*session, {6, 1, AS_OP_WO_A}));
  EXPECT_LT(session->cursor().step, 6);
  EXPECT_TRUE(go_to_step_end(*session, 6));
  EXPECT_LT(session->cursor().step, 6);
  session->resume();
  ASSERT_TRUE(go_to(*session, {6, 1, AS_OP_WO_A}));
  EXPECT_EQ(last_place(*session), (Place{6, 1, AS_OP_WO_A}));
}

TEST(TracePlace, BlocksAreReadWholeWithTheirOwner) {
  auto session = small_session();
  run_steps(*session, 2);
  const auto owners = session->serving().owners();
  const auto owned =
      std::ranges::find_if(owners, [](const BlockOwner& o) { return o.request == 0; });
  ASSERT_NE(owned, owners.end());
  const auto block = static_cast<std::int32_t>(owned - owners.begin());
  const auto bytes = read_block(*session, block);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(bytes->block, block);
  EXPECT_EQ(bytes->step, 2);
  EXPECT_EQ(bytes->owner.request, 0);
  EXPECT_EQ(bytes->owner.group, owned->group);
  ASSERT_EQ(static_cast<std::int64_t>(bytes->bytes.size()), session->slab().own_bytes());
  EXPECT_EQ(std::memcmp(bytes->bytes.data(), session->slab().block(block), bytes->bytes.size()), 0);
  const auto null = read_block(*session, 0);
  ASSERT_TRUE(null);
  EXPECT_TRUE(std::ranges::all_of(null->bytes, [](std::uint8_t b) { return b == 0xFF; }));
  EXPECT_FALSE(read_block(*session, -1));
  const auto beyond = read_block(*session, 400);
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().text().find("0 to 399"), std::string::npos);
}

}  // namespace trace_place_test
}  // namespace attnscope
