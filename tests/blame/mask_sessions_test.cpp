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

// The same prompts in steps of the same tokens.
Scenario without_mask(const Scenario& masked) {
  Scenario plain = masked;
  plain.model.dense.mask.clear();
  return plain;
}

// Chunks beside layers that see all: a mask's places are those of the request.
TEST(MaskSessions, AgreeWithAllReferencesWithinChunks) {
  const char* const mask = "head % 2 == 0 || kv_idx % 5 != 1 || q_idx - kv_idx > 20";
  run_judged(dense_scenario(masked("tiny-llama4", mask, "score * 0.5 + 0.05 * (kv_idx % 48)")));
  // A score alone leaves causality and cut prompts as they are.
  run_judged(dense_scenario(masked("tiny-llama4", "", "score + 0.02 * (kv_idx - q_idx % 40)")));
}

// A chunk takes nothing in that lies ahead of a token or in another chunk, whatever the mask shows.
TEST(MaskSessions, AChunkStaysBehindItsToken) {
  const Scenario causal = dense_scenario(masked("tiny-llama4", "causal"));
  EXPECT_EQ(run_judged(causal), run_judged(without_mask(causal)));
  const auto in_chunks = [](const char* mask) {
    ModelConfig model = masked("tiny-llama4", mask);
    EXPECT_TRUE(select_layers(model, {0, 1, 2}));
    return dense_scenario(model);
  };
  const Scenario shows = in_chunks("1");
  const Said all = run_judged(shows);
  EXPECT_EQ(all, run_judged(without_mask(shows)));
  // The longer request says its first tokens in its third chunk, which is not hidden.
  const Said late = run_judged(in_chunks("kv_idx >= 64"));
  EXPECT_EQ(all[0], late[0]);
  EXPECT_NE(all[1], late[1]);
}

// An encoder, its decoder and what lies across: each side counts from its own first token.
TEST(MaskSessions, AgreeWithAllReferencesAcross) {
  const char* const mask = "kv_idx < 40 && (head % 2 == 0 || (q_idx + kv_idx) % 3 != 0)";
  run_judged(dense_scenario(masked("tiny-t5", mask, "score * 0.5 + 0.05 * (kv_idx % 9)")));
  run_judged(dense_scenario(masked("tiny-t5", "kv_idx <= q_idx + 5")));
  run_judged(dense_scenario(masked("tiny-t5", "", "score + 0.03 * kv_idx - 0.5 * q_idx")));
  // Tokens and layers that see nothing at all.
  run_judged(dense_scenario(masked("tiny-t5", "q_idx % 2 == 0 && kv_idx % 4 == 3")));
}

// Across nothing is causal but what the mask says; a decoder never sees what it says next.
TEST(MaskSessions, AcrossTheMaskAloneSaysWhatIsSeen) {
  const Scenario shows = dense_scenario(masked("tiny-t5", "1"));
  const Said all = run_judged(shows);
  EXPECT_EQ(all, run_judged(without_mask(shows)));
  EXPECT_NE(all, run_judged(dense_scenario(masked("tiny-t5", "causal"))));
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
  for (const char* name : {"tiny-gemma", "tiny-llama4", "tiny-t5"}) {
    EXPECT_EQ(why(masked(name, "causal")), "") << name;
    EXPECT_NE(why(masked(name, "request == 1")), "") << name;
  }

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
