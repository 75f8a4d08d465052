// What a model may say of its attention at the edge of what can be computed, on a sound engine:
// nothing is wrong. A score without a mask, heads that see nothing, sinks that take all, scores of
// thousands, whose LSE has steps of its own size in fp32.
#include <gtest/gtest.h>

#include <string>

#include "app/reports/run.h"
#include "app/wiring/wiring.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace odd_attention_test {

RunResult run(const std::string& preset, const std::string& more) {
  // An encoder's request ends with the step of its prompt.
  const std::string tokens = preset == "tiny-bert" ? "1" : "3";
  const auto scenario = parse_scenario(
      R"({"version": 1, "model": {"preset": ")" + preset + R"(", "seed": 12, )" + more +
          R"(}, "pool_blocks": 40, "token_budget": 64, "decode_steps": 2, "requests": [)" +
          R"({"name": "a", "text": "Why does the window move at all?", "max_new_tokens": )" +
          tokens + R"(},{"name": "b", "text": "A short one.", "max_new_tokens": )" + tokens + "}]}",
      "odd.json");
  EXPECT_TRUE(scenario) << scenario.error().text();
  if (!scenario) return {};
  RunOptions options;
  options.session.references = References::kBoth;
  options.session.witness = true;
  auto result = run_scenario(*scenario, all_lanes(), options, {});
  EXPECT_TRUE(result) << result.error().text();
  return result ? std::move(*result) : RunResult();
}

void expect_right(const std::string& preset, const std::string& more) {
  SCOPED_TRACE(preset + " " + more);
  const RunResult result = run(preset, more);
  EXPECT_FALSE(result.steps.empty());
  EXPECT_EQ(result.summary.verdict(), "ok");
  EXPECT_EQ(result.witnessed.left_out, "");
  EXPECT_GT(result.witnessed.rows, 0);
  if (result.summary.first_wrong) {
    ADD_FAILURE() << result.summary.first_wrong->tap << ": " << result.summary.first_wrong->note;
  }
}

TEST(OddAttention, AScoreWithoutAMaskGivesUnseenKeysNothing) {
  expect_right("tiny-llama", R"x("score": "soft_cap(20)")x");
  expect_right("tiny-llama", R"("score": "score * 0 + 1")");
}

TEST(OddAttention, HeadsAndTokensThatSeeNothingGiveNothing) {
  expect_right("tiny-llama", R"("mask": "head % 2 == 0 && causal")");
  expect_right("tiny-bert", R"("mask": "q_idx < 3")");
}

TEST(OddAttention, ASinkMayTakeAll) {
  expect_right("tiny-gptoss", R"("sinks": {"1": "inf"})");
  expect_right("tiny-gptoss", R"("sinks": {"1": 5000})");
}

TEST(OddAttention, ScoresOfThousandsAreNoFault) {
  expect_right("tiny-llama", R"("mask": "causal", "score": "score * 1e4")");
  expect_right("tiny-bert", R"("score": "score * 1e4")");
}

}  // namespace odd_attention_test
}  // namespace attnscope
