// Sessions under masks and score functions that a user writes, on attention with pages and without.
#include "engine/sched/serving.h"
#include "engine/trace/tap_result.h"
#include "tests/blame/dense_session.h"
#include "tests/blame/encoder_session.h"

namespace attnscope {
namespace mask_sessions_test {

using Said = std::vector<std::vector<std::int32_t>>;

ModelConfig masked(const char* name, const char* mask, const char* score = "") {
  ModelConfig c = *preset(name);
  c.dense.mask = mask;
  c.dense.score = score;
  return c;
}

// All requests' tokens; every tap is judged by both references and ref.model, and none is wrong.
Said run_judged(const Scenario& scenario) {
  SessionOptions options;
  options.references = References::kBoth;
  options.witness = true;
  options.threads = 2;
  const auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  Said said;
  if (!session) return said;
  while (!(*session)->finished()) {
    const auto ok = (*session)->step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) return said;
    for (const TapResult& r : (*session)->history().back().results) {
      EXPECT_NE(r.verdict, Verdict::kWrong)
          << as_op_find(r.op)->name << '.' << r.tap << ": " << r.note;
      EXPECT_NE(r.verdict, Verdict::kNotCompared) << as_op_find(r.op)->name << '.' << r.tap;
    }
  }
  for (const Request& r : (*session)->serving().requests()) said.push_back(r.tokens);
  return said;
}

TEST(MaskSessions, AgreeWithAllReferences) {
  run_judged(dense_scenario(masked_model()));
  run_judged(dense_scenario(masked("tiny-alibi", "document(20, 50)")));
  run_judged(encoder_scenario(masked("tiny-bert", "document(20) || kv_idx < 3", "soft_cap(4)")));
}

// Beside windows, in every layer and in some, with sinks.
TEST(MaskSessions, AgreeWithAllReferencesWithinWindows) {
  const char* const mask = "head % 2 == 0 || kv_idx % 3 != 0";
  for (const char* name : {"tiny-mistral", "tiny-gemma", "tiny-gptoss"}) {
    run_judged(dense_scenario(masked(name, mask, "score * 0.5 + 0.05 * kv_idx")));
  }
}

// A window takes nothing in that lies ahead, whatever the mask shows, and nothing before it.
TEST(MaskSessions, AWindowStaysBehindItsToken) {
  const Said all = run_judged(dense_scenario(masked("tiny-mistral", "1")));
  EXPECT_EQ(all, run_judged(dense_scenario(masked("tiny-mistral", "causal"))));
  Scenario plain = dense_scenario(*preset("tiny-mistral"));
  plain.requests = dense_scenario(masked("tiny-mistral", "1")).requests;
  plain.limits.token_budget = 142;
  EXPECT_EQ(all, run_judged(plain));
  EXPECT_NE(all, run_judged(dense_scenario(masked("tiny-mistral", "kv_idx % 2 == 0"))));
}

// The same tokens as without one, step by step, where the mask says what the layers do.
TEST(MaskSessions, CausalIsWhatLayersHave) {
  const Said masked_said = run_judged(dense_scenario(masked("tiny-llama", "causal")));
  EXPECT_EQ(masked_said, run_judged(dense_scenario(masked("tiny-llama", "kv_idx <= q_idx"))));
  Scenario plain = dense_scenario(*preset("tiny-llama"));
  plain.requests = dense_scenario(masked("tiny-llama", "causal")).requests;
  plain.limits.token_budget = 142;
  EXPECT_EQ(masked_said, run_judged(plain));
  EXPECT_NE(masked_said, run_judged(dense_scenario(masked("tiny-llama", "sliding(4)"))));
}

TEST(MaskSessions, WhatDoesNotGoIsRefused) {
  const auto why = [](const ModelConfig& model) {
    const auto ok = validate(model);
    return ok ? std::string() : ok.error().text();
  };
  EXPECT_EQ(why(masked("tiny-llama", "causal")), "");
  const std::string broken = why(masked("tiny-llama", "kv_idx <= "));
  EXPECT_NE(broken.find("mask \"kv_idx <= \""), std::string::npos) << broken;
  const std::string request = why(masked("tiny-llama", "request == 1"));
  EXPECT_NE(request.find("rows of a step change places"), std::string::npos) << request;
  EXPECT_EQ(why(masked("tiny-gemma", "causal")), "");
  const std::string chunks = why(masked("tiny-llama4", "causal"));
  EXPECT_NE(chunks.find("beside chunks"), std::string::npos) << chunks;
  EXPECT_NE(why(masked("tiny-t5", "causal")), "");

  Scenario s = dense_scenario(masked("tiny-llama", "causal"));
  s.limits.token_budget = 70;
  const auto session = Session::create(s, all_lanes(), SessionOptions());
  ASSERT_FALSE(session);
  EXPECT_NE(session.error().text().find("has a mask over all of a prompt"), std::string::npos)
      << session.error().text();
}

// They are the scenario's: another model takes them on, or says why it cannot.
TEST(MaskSessions, AnotherModelTakesOnTheMaskOfTheScenario) {
  ModelChoice choice;
  choice.model = "tiny-mistral";
  const auto other = load_scenario("tiny-mask", choice);
  ASSERT_TRUE(other) << other.error().text();
  const auto own = load_scenario("tiny-mask");
  ASSERT_TRUE(own);
  EXPECT_EQ(other->model.name, "tiny-mistral");
  EXPECT_EQ(other->model.dense.mask, own->model.dense.mask);
  EXPECT_EQ(other->model.dense.score, own->model.dense.score);
  choice.model = "tiny";
  const auto selects = load_scenario("tiny-mask", choice);
  ASSERT_FALSE(selects);
  EXPECT_NE(selects.error().text().find("not by a mask"), std::string::npos)
      << selects.error().text();
}

}  // namespace mask_sessions_test
}  // namespace attnscope
