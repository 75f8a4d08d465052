// Dense attention in two passes, in sessions: nobody is blamed, tokens are those of one pass, steps
// do have a cut, and each bug of the passes is named alone.
#include "engine/config/scenario.h"
#include "kernels/cpu/paged_forms.h"
#include "tests/blame/dense_session.h"
#include "tests/blame/trial.h"

namespace attnscope {
namespace form_sessions_test {

Scenario formed(Scenario scenario, const char* form) {
  auto switches = profile_switches(std::string("vllm,attention_form=") + form);
  EXPECT_TRUE(switches) << switches.error().text();
  scenario.model.switches = *switches;
  return scenario;
}

// Three requests with the same 100 tokens, the last two of which come when the first decodes.
Scenario shared_prompt(const ModelConfig& model) {
  Scenario s;
  s.name = "shared prompt";
  s.model = model;
  s.seed = 3;
  s.pool_blocks = 200;
  s.limits = {160, 4};
  s.decode_steps = 6;
  add_request(s, 100, 8);
  for (const std::int64_t more : {13, 30}) {
    add_request(s, 100 + more, 5, 1);
    std::copy_n(s.requests[0].tokens.begin(), 100, s.requests.back().tokens.begin());
  }
  return s;
}

struct Ran {
  std::vector<std::vector<std::int32_t>> sampled;  // by step
  std::int64_t cut = 0, shared = 0;                // calls
};

Ran run_all(const Scenario& scenario, References references) {
  Ran ran;
  auto session = session_of(scenario, references);
  while (!session->finished()) {
    const auto ok = session->op();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) return ran;
    const OpParams& params = session->last_params();
    if (params.op() != AS_OP_PAGED_ATTENTION) continue;
    const cpu::ContextCuts cuts = cpu::context_cuts(params.get<as_paged_attention_params>());
    if (std::ranges::any_of(cuts.rows, [](std::int64_t row) { return row > 0; })) ++ran.cut;
    if (cuts.shared >= 0) ++ran.shared;
  }
  for (const StepRecord& step : session->history()) {
    ran.sampled.push_back(step.sampled);
    const auto blamed = blame(step.results);
    EXPECT_TRUE(blamed.empty()) << sentences(blamed);
  }
  return ran;
}

TEST(FormSessions, TwoPassesBlameNobodyAndGiveTheTokensOfOne) {
  for (const std::string& name : dense_names()) {
    SCOPED_TRACE(name);
    const Scenario scenario = shared_prompt(*preset(name));
    const Ran plain = run_all(formed(scenario, "one_pass"), References::kNone);
    EXPECT_EQ(plain.cut, 0);
    const Ran merged = run_all(formed(scenario, "merged"), References::kSim);
    EXPECT_EQ(merged.sampled, plain.sampled);
    EXPECT_GT(merged.cut, 0);
    EXPECT_EQ(merged.shared, 0);
    const Ran cascade = run_all(formed(scenario, "cascade"), References::kSim);
    EXPECT_EQ(cascade.sampled, plain.sampled);
    // Where some layer sees all of a request, and pages are found again.
    const ModelConfig model = *preset(name);
    bool whole = false;
    for (std::size_t i = 0; i < model.dense.windows.size(); ++i) {
      const bool chunks = !model.dense.chunks.empty() && model.dense.chunks[i] > 0;
      whole = whole || (model.dense.windows[i] == 0 && !chunks);
    }
    EXPECT_EQ(cascade.shared > 0, whole);
    EXPECT_EQ(cascade.cut, cascade.shared);
  }
}

// Each in a session whose steps are cut, beside every bug of attention that is no bug of passes.
TEST(FormSessions, EachBugIsNamedAlone) {
  int bugs = 0;
  for (const char* form : {"merged", "cascade"}) {
    Trial trial(session_of(formed(shared_prompt(*preset("tiny-llama")), form)));
    for (const mutants::RareMutant& mutant : mutants::rare()) {
      if (std::string_view(mutant.scenario) != form) continue;
      SCOPED_TRACE(mutant.lane.name);
      ++bugs;
      const std::vector<Blame> blamed = trial.run({{mutant.lane.name, mutant.op, mutant.op}});
      ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
      EXPECT_EQ(blamed[0].op, AS_OP_PAGED_ATTENTION) << sentences(blamed);
      EXPECT_FALSE(blamed[0].cache);
      // With a bug of another op in, both or one of the two are named.
      const Planted other{"mutant:value_heads_transposed", AS_OP_ROPE_KV_INSERT,
                          AS_OP_ROPE_KV_INSERT};
      for (const Blame& b : trial.run({{mutant.lane.name, mutant.op, mutant.op}, other})) {
        EXPECT_TRUE(b.op == mutant.op || b.op == other.op) << b.sentence();
      }
    }
  }
  EXPECT_EQ(bugs, 8);
}

TEST(FormSessions, ScenariosReachTheirForms) {
  const auto cascade = load_scenario("cascade");
  ASSERT_TRUE(cascade) << cascade.error().text();
  EXPECT_GT(run_all(*cascade, References::kSim).shared, 10);
  const auto merged = load_scenario("merged");
  ASSERT_TRUE(merged) << merged.error().text();
  EXPECT_GT(run_all(*merged, References::kSim).cut, 10);
}

}  // namespace form_sessions_test
}  // namespace attnscope
