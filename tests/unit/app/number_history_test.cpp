// Numbers from step to step.
#include "app/views/number_history.h"

#include <gtest/gtest.h>

#include <cmath>

#include "app/reports/steps_again.h"
#include "app/views/slot_traffic.h"
#include "app/views/top_k_view.h"
#include "app/wiring/wiring.h"
#include "tests/unit/app/stepped_session.h"
#include "tests/unit/app/trace_builder.h"

namespace attnscope {
namespace number_history_test {

std::shared_ptr<const StepTrace> step_with(std::int64_t number, std::int64_t known,
                                           std::int64_t tokens, const std::vector<float>& values) {
  auto step = std::make_shared<StepTrace>(make_step(number, known, tokens));
  OpTrace& op = add_op(*step, 2, AS_OP_ATTN_NORM);
  add_tap(op, "y", values, tokens);
  op.taps.back().axes = "T,hidden";
  return step;
}

FollowedNumber element(int layer, std::int32_t request, const TapIndex& index) {
  FollowedNumber number;
  number.place = {0, layer, AS_OP_ATTN_NORM};
  number.tap = "y";
  number.request = request;
  number.index = index;
  number.token_axis = 0;
  number.words = "y of hidden 1";
  return number;
}

TEST(NumberHistory, FollowsTheNewestRowOfTheRequest) {
  const auto first = step_with(4, 10, 2, {1, 2, 3, 4});
  const auto second = step_with(5, 11, 1, {5, 6});
  add_reference(const_cast<OpTrace&>(*second->ops[0]), std::vector<double>{5, 6.5}, 1);
  const FollowedNumber number = element(2, 0, TapIndex({0, 1}));
  NumberHistory history;
  for (const auto& step : {first, second}) history[step->step] = *number_in({}, *step, number);
  EXPECT_EQ(history.at(4).value, 4);
  EXPECT_EQ(history.at(5).value, 6);
  EXPECT_TRUE(std::isnan(history.at(4).beside));
  EXPECT_EQ(history.at(5).beside, 6.5);
  EXPECT_EQ(history_sentence(history, number, 5, "kept"),
            "y of hidden 1: 6 in step 5, from 4 to 6 over 2 kept steps.");
  EXPECT_EQ(history_sentence(history, number, 7, "recorded"),
            "y of hidden 1: from 4 to 6 over 2 recorded steps.");
}

TEST(NumberHistory, StepsThatDoNotHoldItGiveNothing) {
  const auto narrow = step_with(4, 10, 1, {1});
  const auto wide = step_with(5, 11, 1, {5, 6});
  EXPECT_FALSE(number_in({}, *narrow, element(2, 0, TapIndex({0, 1}))));
  EXPECT_TRUE(number_in({}, *wide, element(2, 0, TapIndex({0, 1}))));
  EXPECT_FALSE(number_in({}, *wide, element(2, 1, TapIndex({0, 0})))) << "no such request";
  EXPECT_FALSE(number_in({}, *wide, element(3, 0, TapIndex({0, 0})))) << "no such layer";
  EXPECT_EQ(history_sentence({}, element(2, 0, TapIndex({0, 1})), 5, "kept"),
            "y of hidden 1 has no value in any kept step.");
}

TEST(NumberHistory, OpsHaveTimesAndErrorsInSummaries) {
  StepSummary step;
  step.timings = {{AS_OP_Q_B_PROJ, 1, 7}, {AS_OP_Q_B_PROJ, 2, 9}, {AS_OP_WO_A, 2, -1}};
  TapResult result;
  result.layer = 2;
  result.op = AS_OP_Q_B_PROJ;
  result.tap = "y";
  result.budget_used = 0.25;
  result.verdict = Verdict::kRounding;
  result.introduced.emplace().max_abs = 1e-4;
  step.results = {result};
  step.results.push_back(result);
  step.results.back().tap = "z";
  step.results.back().budget_used = 0.5;
  FollowedNumber number;
  number.place = {0, 2, AS_OP_Q_B_PROJ};
  number.kind = NumberKind::kTime;
  EXPECT_EQ(number_in(step, number)->value, 9);
  number.kind = NumberKind::kBudget;
  EXPECT_EQ(number_in(step, number)->value, 0.5);
  EXPECT_EQ(number_in(step, number)->what, "z") << "the worst of its taps is named";
  number.kind = NumberKind::kError;
  EXPECT_EQ(number_in(step, number)->value, 1e-4);
  number.place.op = AS_OP_WO_A;
  EXPECT_FALSE(number_in(step, number)) << "it was not compared";
  number.kind = NumberKind::kTime;
  EXPECT_FALSE(number_in(step, number)) << "it was not measured";
}

class NumbersOfSession : public SteppedSession {
 protected:
  FollowedNumber follow(NumberKind kind, const Selection& selection, const Place& cursor) {
    const auto number = followed_number(kind, {*info_, step_, cursor, selection, row_, nullptr});
    EXPECT_TRUE(number) << (number ? "" : number.error().text());
    return number ? *number : FollowedNumber{};
  }
};

TEST_F(NumbersOfSession, AttentionAndSelectionAreThoseOfTheirPanels) {
  Selection selection;
  selection.head = 2;
  const Place cursor{step_->step, 3, AS_OP_SPARSE_ATTENTION};
  const FollowedNumber sink = follow(NumberKind::kSink, selection, cursor);
  const auto& attention = *step_->find(3, AS_OP_SPARSE_ATTENTION)->attention;
  const std::int64_t kept = step_->kept_index(row_);
  const auto at = static_cast<std::size_t>(kept * attention.heads + 2);
  EXPECT_EQ(number_in(*info_, *step_, sink)->value, attention.sink_mass[at]);
  EXPECT_EQ(sink.words, "sink mass of head 2, layer 3, of long");
  const FollowedNumber margin = follow(NumberKind::kMargin, selection, cursor);
  const TopKView view = top_k_view({*info_, *step_, nullptr, margin.place.layer, row_, 0, {}});
  const auto value = number_in(*info_, *step_, margin);
  ASSERT_EQ(value.has_value(), !std::isnan(view.margin));
  if (value) {
    EXPECT_EQ(value->value, view.margin);
  }
}

// A capture of level tables knows that attention ran, and not what it read.
TEST_F(NumbersOfSession, AttentionThatWasNotRecordedIsNotCalledOneThatDidNotRun) {
  StepTrace bare = make_step(0, 10, 1);
  const Selection selection;
  const auto refused = [&] {
    const auto number = followed_number(
        NumberKind::kSink,
        {*info_, &bare, {bare.step, 3, AS_OP_SPARSE_ATTENTION}, selection, 0, nullptr});
    return number ? std::string() : number.error().text();
  };
  EXPECT_NE(refused().find("no attention has run in this step"), std::string::npos) << refused();
  add_op(bare, 3, AS_OP_SPARSE_ATTENTION);
  EXPECT_NE(refused().find("was not recorded; go to a step"), std::string::npos) << refused();
}

TEST_F(NumbersOfSession, WhatIsOpenMayHaveNoSuchNumber) {
  Selection selection;
  selection.head = 2;
  const Place cursor{step_->step, 3, AS_OP_SPARSE_ATTENTION};
  const FollowedNumber sink = follow(NumberKind::kSink, selection, cursor);
  const FollowedNumber time = follow(NumberKind::kTime, selection, cursor);
  EXPECT_EQ(not_here(*info_, sink), "");
  EXPECT_EQ(not_here(*info_, time), "");
  SessionInfo other = *info_;
  other.request_names[static_cast<std::size_t>(sink.request)] = "another";
  EXPECT_EQ(not_here(other, sink), "its request 0 is not \"long\"");
  EXPECT_EQ(not_here(other, time), "") << "it is nobody's";
  other = *info_;
  other.config.heads = 2;
  EXPECT_EQ(not_here(other, sink), "it has 2 heads");
  other = *info_;
  other.ops.back() = {AS_OP_ATTN_NORM};
  EXPECT_EQ(not_here(other, sink), "sparse_attention, layer 3 does not run there");
  other.config.layers.pop_back();
  EXPECT_EQ(not_here(other, time), "layer 3 does not run");
  selection.block = 3;
  selection.row = 0;
  selection.group = 0;
  const FollowedNumber slot = follow(NumberKind::kSlot, selection, cursor);
  const FollowedNumber owner = follow(NumberKind::kOwner, selection, cursor);
  EXPECT_EQ(not_here(*info_, slot), "");
  EXPECT_EQ(not_here(*info_, owner), "");
  other.layout.groups[0].name = "MLA of another";
  EXPECT_NE(not_here(other, slot), "");
  EXPECT_EQ(not_here(other, owner), "");
  other.num_blocks = 3;
  EXPECT_EQ(not_here(other, owner), "the pool has no block 3");
}

TEST_F(NumbersOfSession, ASlotIsWrittenOnceAndReadUntilItLeavesTheWindow) {
  // The row of the newest token in the first windowed group.
  const int group_index = info_->layout.swa_groups.front();
  Selection selection;
  for (const TokenSlot& slot : slots_of_token(*info_, *request_, position_)) {
    if (slot.group != group_index || slot.ratio != 1) continue;
    selection.block = slot.block;
    selection.row = slot.row;
    selection.group = slot.group;
  }
  ASSERT_GT(selection.block, 0);
  const FollowedNumber number =
      follow(NumberKind::kSlot, selection, {step_->step, 0, AS_OP_SPARSE_ATTENTION});
  const auto now = number_in(*info_, *step_, number);
  ASSERT_TRUE(now);
  EXPECT_GE(now->value, 1) << "its own token reads it";
  EXPECT_GE(now->beside, 1) << "it was written in this step";
  EXPECT_NE(now->what.find("written by"), std::string::npos) << now->what;
  EXPECT_NE(now->what.find("read by"), std::string::npos) << now->what;
  const StepTrace* before = snapshot_->trace(step_->step - 1);
  ASSERT_NE(before, nullptr);
  EXPECT_EQ(number_in(*info_, *before, number)->value, 0) << "nobody could read it yet";
  const FollowedNumber owner =
      follow(NumberKind::kOwner, selection, {step_->step, 0, AS_OP_SPARSE_ATTENTION});
  EXPECT_EQ(number_in(*info_, *step_, owner)->value, 0);
  EXPECT_FALSE(followed_number(
      NumberKind::kSlot,
      {*info_, step_, {step_->step, 0, AS_OP_SPARSE_ATTENTION}, Selection{}, row_, nullptr}));
}

TEST_F(NumbersOfSession, StepsThatRunAgainGiveTheSame) {
  Selection selection;
  selection.head = 1;
  const FollowedNumber number =
      follow(NumberKind::kSink, selection, {step_->step, 3, AS_OP_SPARSE_ATTENTION});
  NumberHistory again;
  std::int64_t asked = 0;
  const Scenario scenario = small_scenario(260, 8);
  SessionOptions options;
  options.references = References::kNone;
  const auto see = [&](const SessionInfo& info, const StepTrace& step) {
    if (const auto value = number_in(info, step, number)) again[step.step] = *value;
  };
  const auto ok =
      steps_again(scenario, all_lanes(), options, {}, step_->step, see, [&](double share) {
        EXPECT_GE(share, 0);
        EXPECT_LT(share, 1);
        ++asked;
        return true;
      });
  ASSERT_TRUE(ok) << ok.error().text();
  EXPECT_GT(asked, 100);
  EXPECT_EQ(again.rbegin()->first, step_->step);
  for (const auto& trace : snapshot_->traces) {
    const auto kept = number_in(*info_, *trace, number);
    ASSERT_EQ(kept.has_value(), again.contains(trace->step)) << trace->step;
    if (kept) {
      EXPECT_EQ(again.at(trace->step).value, kept->value) << trace->step;
    }
  }
  again.clear();
  const auto stopped = steps_again(scenario, all_lanes(), options, {}, step_->step, see,
                                   [&](double) { return false; });
  EXPECT_FALSE(stopped);
  EXPECT_TRUE(again.empty());
}

}  // namespace number_history_test
}  // namespace attnscope
