#include "app/views/stop_condition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace stop_condition_test {

StopCondition stop(std::string_view text) {
  auto parsed = StopCondition::parse(text);
  EXPECT_TRUE(parsed) << text << ": " << (parsed ? "" : parsed.error().message);
  return parsed ? *parsed : StopCondition();
}

std::string refusal(std::string_view text) {
  const auto parsed = StopCondition::parse(text);
  EXPECT_FALSE(parsed) << text;
  return parsed ? "" : parsed.error().message + " | " + parsed.error().hint;
}

TapResult result(int layer, as_op_id op, const char* tap, Verdict verdict, double used) {
  TapResult r;
  r.step = 7;
  r.layer = layer;
  r.op = op;
  r.tap = tap;
  r.verdict = verdict;
  r.budget_used = used;
  r.introduced = ErrorFigures{};
  r.introduced->max_abs = used / 10;
  return r;
}

StepSummary summary() {
  StepSummary step;
  step.step = 7;
  step.results = {result(0, AS_OP_ATTN_NORM, "y", Verdict::kEqual, 0),
                  result(2, AS_OP_WO_B, "y", Verdict::kRounding, 0.7),
                  result(3, AS_OP_WO_B, "y", Verdict::kWrong, 1.5),
                  result(-1, AS_OP_LM_HEAD, "y", Verdict::kWrong, 9)};
  auto events = std::make_shared<std::vector<CacheEvent>>(2);
  (*events)[0].kind = CacheEventKind::kUnhash;
  (*events)[0].block = 211;
  (*events)[1].kind = CacheEventKind::kPreempt;
  (*events)[1].request = 2;
  step.cache_events = events;
  return step;
}

TEST(StopCondition, FindsTheFirstPlaceOfResultsAndEvents) {
  const SessionInfo info;
  const StepSummary step = summary();
  const auto layer_of = [&](std::string_view text) {
    const auto hit = stop(text).find(info, step, nullptr);
    return hit ? hit->place.layer : -99;
  };
  EXPECT_EQ(layer_of("wrong"), 3);
  EXPECT_EQ(layer_of("rounding"), 2);
  EXPECT_EQ(layer_of("near_tie"), -99);
  EXPECT_EQ(layer_of("wrong of wo_b"), 3);
  EXPECT_EQ(layer_of("wrong of 2/wo_b"), -99);
  EXPECT_EQ(layer_of("wrong of -/lm_head.y"), -1);
  EXPECT_EQ(layer_of("wrong of attn_norm"), -99);
  EXPECT_EQ(layer_of("budget > 0.5"), 2);
  EXPECT_EQ(layer_of("budget>0.5 of 3/"), 3);
  EXPECT_EQ(layer_of("budget < 0.5 of wo_b"), -99);
  EXPECT_EQ(layer_of("max_abs > 0.1"), 3);
  EXPECT_EQ(layer_of("mass_moved > 0"), -99) << "no result has one";

  const auto wrong = stop("wrong of wo_b.y").find(info, step, nullptr);
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->result, &step.results[2]);
  EXPECT_EQ(wrong->why, "wo_b.y of layer 3 is wrong");
  const auto evicted = stop("evict block 211").find(info, step, nullptr);
  ASSERT_TRUE(evicted);
  EXPECT_EQ(evicted->block, 211);
  EXPECT_EQ(evicted->place.step, 7);
  EXPECT_TRUE(stop("preempt").find(info, step, nullptr));
  EXPECT_TRUE(stop("preempt request 2").find(info, step, nullptr));
  EXPECT_FALSE(stop("preempt request 1").find(info, step, nullptr));
  EXPECT_FALSE(stop("evict block 3").find(info, step, nullptr));
  EXPECT_FALSE(stop("hit").find(info, step, nullptr));
}

TEST(StopCondition, LooksAtValuesOfATrace) {
  const SessionInfo info;
  const StepSummary step = summary();
  float y[] = {1, -2, std::numeric_limits<float>::quiet_NaN(), 40};
  float sound[] = {1, -2, 3, 40};
  StepTrace trace;
  auto op = std::make_shared<OpTrace>();
  op->place = {7, 3, AS_OP_WO_B};
  TapCopy tap;
  tap.name = "y";
  tap.output = true;
  tap.value = make_tensor(y, AS_F32, {1, 4});
  tap.reference = make_tensor(sound, AS_F32, {1, 4});
  op->taps.push_back(tap);
  trace.ops.push_back(op);
  const auto holds = [&](std::string_view text) {
    return stop(text).find(info, step, &trace).has_value();
  };
  EXPECT_TRUE(stop("max > 39").needs_trace());
  EXPECT_FALSE(stop("max > 39").find(info, step, nullptr)) << "without a trace nothing is known";
  EXPECT_TRUE(holds("max > 39"));
  EXPECT_FALSE(holds("max > 40"));
  EXPECT_TRUE(holds("min < -1 of wo_b.y"));
  EXPECT_FALSE(holds("min < -1 of wo_a"));
  EXPECT_TRUE(holds("nan"));
  EXPECT_FALSE(holds("infinities > 0"));
  EXPECT_FALSE(holds("margin < 1"));
  EXPECT_FALSE(holds("null_read"));
  // Where the reference has none either, nothing was to be written.
  op->taps[0].reference = op->taps[0].value;
  EXPECT_FALSE(holds("nan"));
}

TEST(StopCondition, SaysWhatIsWrongWithATextThatIsNone) {
  EXPECT_NE(refusal("").find("is empty"), std::string::npos);
  EXPECT_NE(refusal("wrnog").find("did you mean wrong?"), std::string::npos);
  EXPECT_NE(refusal("wrong of sparse_atention").find("did you mean sparse_attention?"),
            std::string::npos);
  EXPECT_NE(refusal("wrong of wo_b.z").find("its taps: "), std::string::npos);
  EXPECT_NE(refusal("wrong of x/wo_b").find("'x' is no layer"), std::string::npos);
  EXPECT_NE(refusal("budget 0.5").find("no > or <"), std::string::npos);
  EXPECT_NE(refusal("budget > much").find("'much' is no number"), std::string::npos);
  EXPECT_NE(refusal("budget > inf").find("is no number"), std::string::npos);
  EXPECT_NE(refusal("evict block x").find("'x' is no number of a block"), std::string::npos);
  EXPECT_NE(refusal("wrong wrong").find("is too much"), std::string::npos);
  EXPECT_NE(refusal("wrong of \x1b[31m").find("\\x1b"), std::string::npos);
  EXPECT_NE(refusal(std::string(300, 'w')).find("too long"), std::string::npos);
}

}  // namespace stop_condition_test
}  // namespace attnscope
