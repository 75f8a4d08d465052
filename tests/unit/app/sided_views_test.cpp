// What panels say of an encoder-decoder: rows of the source and of the decoder, layer by layer.
#include <gtest/gtest.h>

#include "app/views/block_tables_view.h"
#include "app/views/mass_view.h"
#include "app/views/reach_view.h"
#include "app/views/why_view.h"
#include "app/views/window_view.h"
#include "engine/model/numbers.h"
#include "engine/session/snapshot.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace sided_views_test {

// Two steps: the prompts, of which the first has 60 tokens, 58 of them source; then decoders.
class SidedViews : public ::testing::Test {
 protected:
  explicit SidedViews(int steps = 2, const char* mask = "") {
    Scenario scenario = small_scenario(60, 4);
    scenario.model = *preset("tiny-t5");
    scenario.model.dense.mask = mask;
    scenario.limits.token_budget = 160;
    session_ = small_session(References::kNone, scenario);
    session_->set_observer(&recorder_);
    run_steps(*session_, steps);
    info_ = session_info(*session_);
    snapshot_ = take_snapshot(*session_, recorder_, info_, 1);
    step_ = snapshot_->traces.back().get();
  }

  WindowView of(int layer, std::int64_t position) const {
    return window_view(*info_, *step_, layer, step_->token_row(0, position), 3);
  }
  static double sum(const WindowView& view) {
    double total = 0;
    for (const WindowSlot& slot : view.slots) total += slot.weight;
    return total;
  }

  TraceRecorder recorder_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<const SessionInfo> info_;
  std::shared_ptr<const Snapshot> snapshot_;
  const StepTrace* step_ = nullptr;
};

// The step of the prompts alone.
class SidedPrompts : public SidedViews {
 protected:
  SidedPrompts() : SidedViews(1) {}
};

// Every third of the source, and of the decoder, by places of each side.
class SidedMasks : public SidedViews {
 protected:
  SidedMasks() : SidedViews(2, "kv_idx % 3 == 0 && kv_idx <= q_idx + 9") {}
};

// The decoder's third token, place 2, sees places 0, 3, 6 and 9 of the source, and its side's 0.
TEST_F(SidedMasks, SayWhatTheMaskShowsOnEitherSide) {
  const WindowView across = of(3, 60), own = of(2, 60);
  ASSERT_EQ(across.slots.size(), 58u);
  EXPECT_NE(across.sentence.find("The mask shows 4 of these rows."), std::string::npos)
      << across.sentence;
  for (const WindowSlot& slot : across.slots) {
    EXPECT_EQ(slot.weight > 0, slot.position % 3 == 0 && slot.position < 12) << slot.position;
  }
  ASSERT_EQ(own.slots.size(), 3u);
  EXPECT_NE(own.sentence.find("The mask shows 1 of these rows."), std::string::npos)
      << own.sentence;
  EXPECT_GT(own.slots.front().weight, 0) << "place 0, position 58";
  const WhyView why = why_view({*info_, *step_, 3, step_->token_row(0, 60), 0, 0});
  EXPECT_NE(why.sentence.find(": 4 rows with "), std::string::npos) << why.sentence;
  EXPECT_NEAR(sum(across), 1, 1e-5);
}

// Token 60 is the decoder's third: behind 58 of the source and the two that begin it.
TEST_F(SidedViews, CrossAttentionShowsTheSource) {
  const WindowView view = of(3, 60);
  ASSERT_TRUE(view.valid) << view.sentence;
  ASSERT_EQ(view.slots.size(), 58u);
  EXPECT_EQ(view.slots.front().position, 0);
  EXPECT_EQ(view.slots.back().position, 57);
  EXPECT_EQ(view.own, -1);
  for (const WindowSlot& slot : view.slots) {
    EXPECT_GE(slot.slot, 16);
    EXPECT_TRUE(slot.has_weight);
  }
  EXPECT_NEAR(sum(view), 1, 1e-5);
  EXPECT_NE(view.sentence.find("token 2 of the decoder sees the source, 58 tokens,"),
            std::string::npos)
      << view.sentence;
  EXPECT_NE(view.sentence.find("written with the prompt and stay"), std::string::npos);
}

TEST_F(SidedViews, TheDecoderBeginsBehindTheSource) {
  const WindowView view = of(2, 60);
  ASSERT_TRUE(view.valid) << view.sentence;
  ASSERT_EQ(view.slots.size(), 3u);
  EXPECT_EQ(view.slots.front().position, 58);
  EXPECT_EQ(view.slots.back().position, 60);
  EXPECT_EQ(view.own, 2);
  EXPECT_NEAR(sum(view), 1, 1e-5);
}

TEST_F(SidedViews, OtherSidesSayWhy) {
  const WindowView view = of(0, 60);
  EXPECT_FALSE(view.valid);
  EXPECT_NE(view.sentence.find("Token 60 is of the decoder"), std::string::npos) << view.sentence;
  EXPECT_TRUE(reach_view(*info_, 3, 60).rows.empty());
  EXPECT_EQ(mass_view(*info_, *step_, 3, step_->token_row(0, 60), 2).why_empty, "");
  const BlockTablesView tables = block_tables_view({*info_, *step_, 0, 0, -1});
  ASSERT_FALSE(tables.requests.empty());
  EXPECT_FALSE(tables.requests[0].strips.empty());
}

// Of long steps the last rows alone have weights.
TEST_F(SidedPrompts, TheEncoderShowsAllOfTheSource) {
  const WindowView view = of(1, 50);
  ASSERT_TRUE(view.valid) << view.sentence;
  ASSERT_EQ(view.slots.size(), 58u);
  EXPECT_EQ(view.own, 50);
  EXPECT_NEAR(sum(view), 1, 1e-5);
  const WindowView source = of(2, 50);
  EXPECT_FALSE(source.valid);
  EXPECT_NE(source.sentence.find("Token 50 is of the source"), std::string::npos);
}

}  // namespace sided_views_test
}  // namespace attnscope
