// Going back and running again: what a session holds then is what it held the first time.
#include <algorithm>
#include <cmath>

#include "engine/session/what_if/what_if_after.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"
#include "tests/blame/planted_around.h"

namespace attnscope {
namespace going_back_test {

// A value of the block's first page, once.
std::int32_t spoiled_block;
void spoil_block(const Slab& slab) {
  if (spoiled_block > 0) slab.block(spoiled_block)[3] ^= 1;
  spoiled_block = 0;
}

const BetweenOps kSpoiled = {.restored = spoil_block};

const TapResult* replay_result(const std::vector<TapResult>& results) {
  const auto at =
      std::ranges::find_if(results, [](const TapResult& r) { return r.tap.ends_with(kReplayTap); });
  return at != results.end() ? &*at : nullptr;
}

TEST(GoingBack, CorruptedBytesAreNamedWithTheirSlot) {
  auto session = session_with(tiny_scenario(7, 150), kSpoiled);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(session->step());
  spoiled_block = session->serving().blocks_with_content().front();
  const std::string block = fmt::format("(block {}, row 0)", spoiled_block);
  ASSERT_TRUE(session->step_back());
  ASSERT_TRUE(session->step());
  ASSERT_EQ(session->replay_faults().size(), 1u);
  const TapResult* found = replay_result(session->history()[2].results);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->verdict, Verdict::kWrong);
  EXPECT_EQ(found->step, 2);
  EXPECT_TRUE(found->note.starts_with("back at the start of step 2 the session does not hold "))
      << found->note;
  EXPECT_NE(found->note.find(block), std::string::npos) << found->note;
  EXPECT_NE(blame({*found}).front().sentence().find("step 2, going back, tap digest.replay: "),
            std::string::npos);
  EXPECT_EQ(summarise(session->history()[2].results, 1).verdict(), "wrong");
}

TEST(GoingBack, AStepThatRunsOtherwiseTheSecondTimeIsNamed) {
  static int run;
  static as_row_address row;
  static const BetweenOps kOtherwise = {.ran = [](const OpParams& params) {
    if (params.op() == AS_OP_Q_ROPE_KV_INSERT) {
      const auto& p = params.get<as_q_rope_kv_insert_params>();
      row = as_cache_row(&p.cache, *at<std::int64_t>(p.slots));
    }
    if (params.op() == AS_OP_SAMPLE && run == 1) row.payload[5] ^= 1;
  }};
  run = 0;
  auto session = session_with(tiny_scenario(7, 150), kOtherwise);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(session->step());
  EXPECT_EQ(replay_result(session->history()[2].results), nullptr);
  ASSERT_TRUE(session->step_back());
  run = 1;
  ASSERT_TRUE(session->step());
  const TapResult* found = replay_result(session->history()[2].results);
  ASSERT_NE(found, nullptr);
  EXPECT_NE(found->note.find("run again, step 2 leaves something else than the first time: the swa "
                             "cache of layer 2"),
            std::string::npos)
      << found->note;
}

TEST(GoingBack, ASoundSessionIsNotAccused) {
  static const BetweenOps kNothing;
  for (const References references : {References::kNone, References::kSim}) {
    auto session = session_with(tiny_scenario(7, 150), kNothing, references);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(session->step());
    for (const std::int64_t step : {3, 1, 0, 4, 2}) {
      ASSERT_TRUE(session->seek({step, -1, 0, false}));
      ASSERT_TRUE(session->op());
    }
    // Other lanes leave other bytes, and may.
    const std::vector<std::string> bug = {"cpu", "sparse_attention=mutant:sink_scaled"};
    ASSERT_TRUE(session->change_lanes(all_lanes(), bug, 1));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(session->step());
    ASSERT_TRUE(session->change_lanes(all_lanes(), {"cpu"}, 1));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(session->step());
    ASSERT_TRUE(session->step_back());
    ASSERT_TRUE(session->step());
    EXPECT_TRUE(session->replay_faults().empty()) << session->replay_faults().front();
  }
}

// Numbers of a run that went on from other bytes are not given out.
TEST(GoingBack, WhatIfSaysSoInPlaceOfNumbers) {
  SessionOptions options;
  options.lanes = {"cpu", kPlantedLane};
  options.threads = 2;
  static bool spoils;
  static const BetweenOps kNan = {.restored = [](const Slab& slab) {
    if (!spoils) return;
    for (std::int64_t block = 1; block < slab.num_blocks(); ++block) {
      std::fill_n(slab.block(block), slab.block_stride(), std::uint8_t{0xff});
    }
  }};
  const auto run = [&] {
    return what_if_after(tiny_scenario(7, 150), lanes_with(kNan), options,
                         {2, 0, AS_OP_SPARSE_ATTENTION}, {.changes = {"no sink"}});
  };
  spoils = true;
  const auto spoiled = run();
  ASSERT_FALSE(spoiled);
  EXPECT_EQ(spoiled.error().code, AS_MISMATCH);
  EXPECT_NE(spoiled.error().message.find("back at the start of step 2"), std::string::npos)
      << spoiled.error().message;
  spoils = false;
  const auto sound = run();
  ASSERT_TRUE(sound) << sound.error().text();
  EXPECT_FALSE(no_number(*sound));
  auto nan = *sound;
  nan.back().steps.front().from_sim = std::nan("");
  EXPECT_TRUE(no_number(nan));
}

}  // namespace going_back_test
}  // namespace attnscope
