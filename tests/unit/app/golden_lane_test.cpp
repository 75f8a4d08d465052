// A golden on another lane than the one that it was recorded on, or at another SIMD level:
// roundings grow from op to op there, and what counts is whether each op is right on its own
// inputs.
#include <bit>

#include "app/wiring/wiring.h"
#include "engine/golden/golden_run.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace golden_lane_test {

// A projection that is right and rounds otherwise: its sums are exact and cut off, not rounded,
// which is less than one step of bf16 from what the reference gives.
std::int32_t cut_off(const void* params, const as_call*, as_error*) {
  const auto& p = *static_cast<const as_linear_params*>(params);
  for (std::int64_t t = 0; t < p.y.shape[0]; ++t) {
    for (std::int64_t o = 0; o < p.y.shape[1]; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < p.x.shape[1]; ++i) {
        sum += static_cast<double>(cpu::bf16_to_float(*at<std::uint16_t>(p.x, t, i))) *
               static_cast<double>(cpu::bf16_to_float(*at<std::uint16_t>(p.weight, o, i)));
      }
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(sum));
      *at<std::uint16_t>(p.y, t, o) = static_cast<std::uint16_t>(bits >> 16);
    }
  }
  return AS_OK;
}

// One that is far off.
std::int32_t far_off(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = cpu::lane()->ops[AS_OP_Q_B_PROJ](params, call, error);
  const as_tensor& y = static_cast<const as_linear_params*>(params)->y;
  for (std::int64_t t = 0; status == AS_OK && t < y.shape[0]; ++t) {
    *at<std::uint16_t>(y, t, 1) = 0x4200;  // 32
  }
  return status;
}

class GoldenLane : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    Lane rounds = *lanes_.find("cpu");
    rounds.name = "rounds_otherwise";
    rounds.ops[AS_OP_WO_B] = cut_off;
    rounds.ops[AS_OP_Q_KV_A_PROJ] = cut_off;
    lanes_.add(rounds);
    // The same with one op that is far off, somewhere before the values that are kept.
    Lane wrong = rounds;
    wrong.name = "wrong_before";
    wrong.ops[AS_OP_Q_B_PROJ] = far_off;
    lanes_.add(wrong);
  }
  GoldenOutcome run_on(const std::string& name, const std::vector<std::string>& lane,
                       const std::string& simd = "") {
    auto folder = GoldenFolder::open(folder_.string());
    EXPECT_TRUE(folder);
    GoldenRunOptions options;
    options.lanes = lane;
    options.threads = 2;
    if (!simd.empty()) options.origin.machine = {{"SIMD", simd}};
    return run_golden(*folder, name, lanes_, options);
  }
  void accept(const std::string& name) {
    EXPECT_EQ(run_on(name, {}).state, GoldenState::kNew);
    auto folder = GoldenFolder::open(folder_.string());
    ASSERT_TRUE(folder);
    GoldenOrigin origin;
    origin.reason = "first";
    const auto ok = folder->accept(name, origin);
    ASSERT_TRUE(ok) << ok.error().text();
  }
  LaneRegistry lanes_ = all_lanes();
};

TEST_F(GoldenLane, ARightLanePassesAndAWrongOpBeforeTheKeptValuesDoesNot) {
  write("deep.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "far down",
    "scenario": "early", "steps": 3, "samples": 200,
    "taps": [{"op": "attn_norm", "layers": [3]}, {"op": "wo_b", "layers": [3]},
             {"op": "final_norm"}, {"op": "lm_head"}, {"op": "block_tables"}]})");
  accept("deep");
  EXPECT_EQ(run_on("deep", {"cpu"}).state, GoldenState::kPassed);
  const GoldenOutcome right = run_on("deep", {"rounds_otherwise"});
  EXPECT_EQ(right.state, GoldenState::kPassed) << right.sentence;
  EXPECT_TRUE(right.received.judged) << "its values are beyond their bounds";
  EXPECT_GT(right.comparison.count(GoldenVerdict::kFollows), 0);
  EXPECT_EQ(right.comparison.count(GoldenVerdict::kWrong), 0);
  const GoldenOutcome wrong = run_on("deep", {"wrong_before"});
  EXPECT_EQ(wrong.state, GoldenState::kFailed) << wrong.sentence;
  EXPECT_NE(wrong.sentence.find("beside ref.sim: "), std::string::npos) << wrong.sentence;
  EXPECT_NE(wrong.sentence.find("q_b_proj"), std::string::npos) << wrong.sentence;
  // On its own lane there is no such excuse.
  std::string text = read(path("deep.accepted.json"));
  const std::size_t at = text.rfind("\"values\":[") + 10;
  text.replace(at, text.find(',', at) - at, "123.5");
  write("deep.accepted.json", text);
  EXPECT_EQ(run_on("deep", {"cpu"}).state, GoldenState::kFailed);
}

// Values that are beyond their bounds are those of right ops at a level that sums in another order,
// and faults where the level is the same, or nobody knows.
TEST_F(GoldenLane, AtAnotherSimdLevelRightOpsPassAndAWrongOneDoesNot) {
  write("deep.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "far down",
    "scenario": "early", "steps": 3, "samples": 20, "taps": [{"op": "wo_b", "layers": [3]}]})");
  EXPECT_EQ(run_on("deep", {}, "some").state, GoldenState::kNew);
  auto folder = GoldenFolder::open(folder_.string());
  ASSERT_TRUE(folder);
  GoldenOrigin origin;
  origin.reason = "first";
  origin.machine = {{"SIMD", "some"}};
  ASSERT_TRUE(folder->accept("deep", origin));
  std::string text = read(path("deep.accepted.json"));
  const std::size_t at = text.rfind("\"values\":[") + 10;
  text.replace(at, text.find(',', at) - at, "123.5");
  write("deep.accepted.json", text);
  EXPECT_EQ(run_on("deep", {"cpu"}).state, GoldenState::kFailed);
  EXPECT_EQ(run_on("deep", {"cpu"}, "some").state, GoldenState::kFailed);
  const GoldenOutcome other = run_on("deep", {"cpu"}, "another");
  EXPECT_EQ(other.state, GoldenState::kPassed) << other.sentence;
  EXPECT_EQ(other.comparison.count(GoldenVerdict::kFollows), 1);
  Lane wrong = *lanes_.find("cpu");
  wrong.ops[AS_OP_Q_B_PROJ] = far_off;
  LaneRegistry others;
  for (const Lane& lane : lanes_.all())
    others.add(std::string_view(lane.name) == wrong.name ? wrong : lane);
  lanes_ = others;
  const GoldenOutcome fault = run_on("deep", {"cpu"}, "another");
  EXPECT_EQ(fault.state, GoldenState::kFailed) << fault.sentence;
  EXPECT_NE(fault.sentence.find("q_b_proj"), std::string::npos) << fault.sentence;
}

// Accepted values say little where their bounds are wide, or where they are compared wrongly.
TEST_F(GoldenLane, WhatHoldsOnAnotherLaneIsHeldAgainstTheReferenceToo) {
  write("wide.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "one op",
    "op": "q_b_proj", "cases": [{"name": "one", "lengths": [6], "new_tokens": 3}],
    "tolerances": [{"class": "dense", "abs": 1e6, "reason": "anything goes"}]})");
  accept("wide");
  EXPECT_EQ(run_on("wide", {"rounds_otherwise"}).state, GoldenState::kPassed);
  const GoldenOutcome wrong = run_on("wide", {"wrong_before"});
  EXPECT_EQ(wrong.state, GoldenState::kFailed) << wrong.sentence;
  EXPECT_NE(wrong.sentence.find("beside ref.sim: "), std::string::npos) << wrong.sentence;
  EXPECT_NE(wrong.sentence.find("q_b_proj"), std::string::npos) << wrong.sentence;
}

// Twice the tolerance may lie between two right kernels; a table is never another one.
TEST_F(GoldenLane, OpsAloneAreJudgedOnTheirInputsToo) {
  write("proj.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "one op",
    "op": "wo_b", "cases": [{"name": "one", "lengths": [6], "new_tokens": 3}],
    "tolerances": [{"class": "dense", "abs": 1e-12, "rel": 1e-12, "bf16_ulp": 0, "row_max": 0,
                    "reason": "as tight as it gets"}]})");
  accept("proj");
  const GoldenOutcome right = run_on("proj", {"rounds_otherwise"});
  EXPECT_EQ(right.state, GoldenState::kPassed) << right.sentence;
  EXPECT_GT(right.comparison.count(GoldenVerdict::kFollows), 0);
  const GoldenOutcome wrong = run_on("proj", {"mutant:activations_in_fp8"});
  EXPECT_EQ(wrong.state, GoldenState::kFailed);
  EXPECT_NE(wrong.sentence.find("one, y of wo_b: "), std::string::npos) << wrong.sentence;
  write("tables.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "slots",
    "op": "slot_mapping", "cases": [{"name": "one", "lengths": [300], "new_tokens": 3}]})");
  accept("tables");
  EXPECT_EQ(run_on("tables", {"rounds_otherwise"}).state, GoldenState::kPassed);
  EXPECT_EQ(run_on("tables", {"mutant:entry_visible_early"}).state, GoldenState::kFailed);
}

}  // namespace golden_lane_test
}  // namespace attnscope
