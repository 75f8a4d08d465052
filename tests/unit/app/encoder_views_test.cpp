// What panels say of a model without caches.
#include <gtest/gtest.h>

#include <algorithm>

#include "app/views/block_tables_view.h"
#include "app/views/mass_view.h"
#include "app/views/reach_view.h"
#include "app/views/slab_view.h"
#include "app/views/why_view.h"
#include "app/views/window_view.h"
#include "engine/model/numbers.h"
#include "engine/session/snapshot.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace encoder_views_test {

class EncoderViews : public ::testing::Test {
 protected:
  EncoderViews() {
    Scenario scenario = small_scenario(60, 1);
    scenario.model = *preset("tiny-bert");
    scenario.limits.token_budget = 100;
    session_ = small_session(References::kNone, scenario);
    session_->set_observer(&recorder_);
    run_steps(*session_, 1);
    info_ = session_info(*session_);
    snapshot_ = take_snapshot(*session_, recorder_, info_, 1);
    step_ = snapshot_->traces.back().get();
  }

  TraceRecorder recorder_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<const SessionInfo> info_;
  std::shared_ptr<const Snapshot> snapshot_;
  const StepTrace* step_ = nullptr;
};

// Requests of 60, 37 and 3 tokens lie one behind the other in a step.
TEST_F(EncoderViews, WindowIsAllOfTheRequest) {
  const std::int64_t row = step_->token_row(1, 10);
  ASSERT_EQ(row, 70);
  const WindowView view = window_view(*info_, *step_, 1, row, 3);
  ASSERT_TRUE(view.valid) << view.sentence;
  ASSERT_EQ(view.slots.size(), 37u);
  EXPECT_EQ(view.own, 10);
  EXPECT_EQ(view.group, -1);
  double sum = 0;
  for (const WindowSlot& slot : view.slots) {
    EXPECT_TRUE(slot.has_weight);
    EXPECT_EQ(slot.slot, -1);
    sum += slot.weight;
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_GT(view.slots.back().weight, 0) << "what lies behind the token is seen too";
  EXPECT_NE(view.sentence.find("Token 10 sees all of its request, 37 tokens,"), std::string::npos)
      << view.sentence;
  const AttentionCopy& copy = *step_->find(1, AS_OP_VARLEN_ATTENTION)->attention;
  EXPECT_LT(copy.lse_error, 1e-3);
  EXPECT_EQ(copy.slots[to_size(step_->kept_index(row) * copy.window)], 60);
}

TEST_F(EncoderViews, MassesAreThoseOfTheRequest) {
  const MassView view = mass_view(*info_, *step_, 0, step_->token_row(1, 10), 2);
  EXPECT_EQ(view.why_empty, "");
  EXPECT_EQ(view.heads, 8);
  EXPECT_EQ(view.weight.size(), 8u * 37u);
}

TEST_F(EncoderViews, OthersSayWhyTheyAreEmpty) {
  const BlockTablesView tables = block_tables_view({*info_, *step_, 0, 0, -1});
  EXPECT_NE(tables.sentence.find("The model has no caches"), std::string::npos);
  ASSERT_FALSE(tables.requests.empty());
  EXPECT_TRUE(tables.requests[0].strips.empty());
  EXPECT_EQ(tables.requests[0].none, "needs no block");
  EXPECT_NE(slab_view(*info_).sentence.find("The model has no caches"), std::string::npos);
  EXPECT_TRUE(reach_view(*info_, 0, 5).rows.empty());
}

}  // namespace encoder_views_test
}  // namespace attnscope
