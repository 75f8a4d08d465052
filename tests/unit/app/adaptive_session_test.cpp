// A session whose chunks of prefill follow what is free of the pool: judged like any other, told
// step by step, and the same tokens come out.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "engine/sched/explain.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace adaptive_session_test {

// Three prompts of different length in a pool that they fill to a good part.
Scenario scenario(AdaptiveChunks chunks) {
  Scenario s;
  s.name = "adaptive";
  s.model = narrow_model({1, 2});
  s.seed = 11;
  s.pool_blocks = 120;
  s.limits = {64, 4};
  s.serving.chunks = chunks;
  const std::int64_t lengths[] = {150, 90, 33};
  for (const std::int64_t length : lengths) {
    ScenarioRequest& r = s.requests.emplace_back();
    r.name = "r" + std::to_string(length);
    for (std::int64_t t = 0; t < length; ++t) {
      r.tokens.push_back(static_cast<std::int32_t>((t * 31 + length) % 251));
    }
    r.max_new_tokens = 4;
  }
  return s;
}

TEST(AdaptiveSession, IsJudgedAndTellsItsChunks) {
  auto session = small_session(References::kSim, scenario({8, 48}));
  TraceRecorder recorder;
  session->set_observer(&recorder);
  std::set<std::int64_t> chunks;
  while (!session->finished()) {
    ASSERT_TRUE(session->step());
    const StepPlan& plan = session->serving().plan();
    EXPECT_GE(plan.chunk, 8);
    EXPECT_LE(plan.chunk, 48);
    chunks.insert(plan.chunk);
    for (const ScheduledTokens& s : plan.scheduled) EXPECT_LE(s.tokens, plan.chunk);
  }
  EXPECT_GT(chunks.size(), 2u);
  EXPECT_TRUE(chunks.contains(48));  // the empty pool's
  for (const StepRecord& step : session->history()) {
    EXPECT_GT(step.decisions, 0);
    for (const TapResult& r : step.results) EXPECT_NE(r.verdict, Verdict::kWrong) << r.note;
  }
  std::vector<std::string> told;
  for (const auto& summary : recorder.summaries()) {
    for (const Event& e : summary->events) {
      if (e.kind == EventKind::kChunk) told.push_back(e.text);
    }
  }
  ASSERT_EQ(told.size(), session->history().size());
  EXPECT_EQ(
      told.front(),
      "Chunks: at most 48 tokens of a prompt in this step, as 119 of 119 blocks are free: 8 + "
      "(48 - 8) x 119 / 119.");

  auto plain = small_session(References::kNone, scenario({}));
  finish(*plain);
  EXPECT_EQ(plain->serving().plan().chunk, 0);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(session->serving().requests()[i].tokens, plain->serving().requests()[i].tokens) << i;
  }
}

TEST(AdaptiveSession, IsAnOptionOfScenarios) {
  const auto parsed = [](const std::string& serving) {
    return parse_scenario(
        R"({"version": 1, "model": {"preset": "tiny"}, "pool_blocks": 400, "serving": {)" +
            serving +
            R"(}, "requests": [{"name": "a", "text": "Why does it move?", "max_new_tokens": 2}]})",
        "adaptive.json");
  };
  const auto good = parsed(R"("adaptive_chunks": {"least": 16, "most": 256})");
  ASSERT_TRUE(good) << good.error().text();
  EXPECT_EQ(good->serving.chunks.least, 16);
  EXPECT_EQ(good->serving.chunks.most, 256);
  EXPECT_FALSE(parsed(R"("prefix_caching": true)")->serving.chunks.on());
  const auto turned = parsed(R"("adaptive_chunks": {"least": 16, "most": 8})");
  ASSERT_FALSE(turned);
  EXPECT_NE(turned.error().text().find("adaptive_chunks go from 16 to 8 tokens"), std::string::npos)
      << turned.error().text();
  const auto half = parsed(R"("adaptive_chunks": {"least": 16})");
  ASSERT_FALSE(half);
  EXPECT_NE(half.error().text().find("most"), std::string::npos) << half.error().text();
}

}  // namespace adaptive_session_test
}  // namespace attnscope
