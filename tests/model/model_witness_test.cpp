// Runs beside ref.model: sound ones agree with it, and a witness that is told of another model than
// the session runs stands for a session that wires another model than it was told of.
#include "app/wiring/model_witness.h"

#include <gtest/gtest.h>

#include <functional>

#include "app/reports/run.h"
#include "app/wiring/wiring.h"
#include "engine/model/numbers.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace model_witness_test {

Scenario witnessed_scenario() {
  Scenario scenario = small_scenario(150, 6);
  scenario.model = *preset("tiny");  // numbers below are of its width
  scenario.model.index_topk = 16;    // so that short texts leave entries out
  return scenario;
}

// What is first said of a session by a witness that is told of another model than it runs.
std::optional<TapResult> parted(const std::function<void(Scenario&)>& change) {
  LaneRegistry lanes = all_lanes();
  lanes.set_witness([&](const Scenario& scenario, const as_threads* threads) {
    Scenario told = scenario;
    change(told);
    return make_model_witness(told, threads);
  });
  SessionOptions options;
  options.threads = 2;
  auto session = Session::create(witnessed_scenario(), lanes, options);
  EXPECT_TRUE(session) << session.error().text();
  while (session && !(*session)->finished()) {
    const auto ok = (*session)->step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) break;
    for (const TapResult& r : (*session)->history().back().results) {
      if (r.verdict == Verdict::kWrong) return r;
    }
  }
  return {};
}

TEST(ModelWitness, NamesTheNumberThatIsAnother) {
  const auto expect = [](int layer, const std::string& tap, const std::string& note,
                         const std::function<void(Scenario&)>& change) {
    SCOPED_TRACE(tap);
    const auto found = parted(change);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->layer, layer);
    EXPECT_EQ(found->tap, tap + ".wiring");
    EXPECT_NE(found->note.find(note), std::string::npos) << found->note;
    const Blame blamed = blame({*found}).front();
    EXPECT_NE(blamed.sentence().find("wiring"), std::string::npos) << blamed.sentence();
  };
  expect(1, "rope.base", "is 160000; the model's is 160001",
         [](Scenario& s) { s.model.compress_rope_theta = 160001; });
  expect(1, "rope.factor", "is 16; the model's is 1", [](Scenario& s) { s.model.yarn_factor = 1; });
  expect(0, "rope.factor", "is 1; the model's is 16",
         [](Scenario& s) { s.model.switches.ratio0_yarn = true; });
  expect(1, "K", "is 16; the model's is 8", [](Scenario& s) { s.model.index_topk = 8; });
  expect(0, "sinks", "8 of 8 values are others", [](Scenario& s) { s.model.sink_shift = 1e-6; });
  expect(-1, "window", "is 128; the model's is 127", [](Scenario& s) { s.model.window = 127; });
  expect(0, "eps", "is 1e-06; the model's is 1.1e-06",
         [](Scenario& s) { s.model.rms_eps = 1.1e-6; });
}

TEST(ModelWitness, AgreesWithRunsAndSaysHowMuchItCompared) {
  Scenario scenario = witnessed_scenario();
  const auto run = [&](References references) {
    RunOptions options;
    options.session.references = references;
    options.session.threads = 2;
    auto result = run_scenario(scenario, all_lanes(), options, {});
    EXPECT_TRUE(result) << result.error().text();
    EXPECT_FALSE(result->error);
    EXPECT_EQ(result->summary.verdict(), "ok");
    return result->witnessed;
  };
  const Witnessed plain = run(References::kBoth);
  EXPECT_EQ(plain.left_out, "");
  EXPECT_GT(plain.rows, 4 * 190);
  EXPECT_LT(plain.worst, 1e-12);
  scenario.serving.drafts = {3, {3, 0, 2}};
  EXPECT_GT(run(References::kBoth).rows, plain.rows);
  // The engine alone.
  const Witnessed sim = run(References::kSim);
  EXPECT_EQ(sim.left_out, "");
  EXPECT_EQ(sim.rows, 0);
  EXPECT_GT(sim.drift, 1e-4);
  EXPECT_LT(sim.drift, Drift::kTimesSim * sim.sim_drift);
}

// The lane is named for what it did; what follows from it is nobody's wiring.
TEST(ModelWitness, LeavesAWrongOpToItsOwnVerdict) {
  RunOptions options;
  options.session.lanes = {"cpu", "sparse_attention=mutant:sink_scaled"};
  options.session.threads = 2;
  const auto result = run_scenario(witnessed_scenario(), all_lanes(), options, {});
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->summary.verdict(), "wrong");
  ASSERT_EQ(result->summary.blamed.size(), 1u);
  EXPECT_EQ(result->summary.blamed[0].op, AS_OP_SPARSE_ATTENTION);
}

// What formats move is within the limit whatever the weights: of every seed and both profiles.
TEST(ModelWitness, LeavesDriftOfFormatsAlone) {
  for (const char* profile : {"vllm", "deepseek"}) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << profile << ", seed " << seed);
      Scenario scenario = witnessed_scenario();
      scenario.seed = seed;
      scenario.model.switches = *profile_switches(profile);
      RunOptions options;
      options.session.references = References::kSim;
      options.session.threads = 2;
      const auto result = run_scenario(scenario, all_lanes(), options, {});
      ASSERT_TRUE(result) << result.error().text();
      EXPECT_EQ(result->summary.verdict(), "ok");
      EXPECT_GT(result->witnessed.drift, 0);
      EXPECT_LT(result->witnessed.drift, Drift::kAlone);
    }
  }
}

TEST(ModelWitness, MeasuresASelectionByTheModelsScores) {
  reference::ModelChoice choice;
  choice.entries = 4;
  choice.selected = {true, false, true, false};
  choice.scores = {5, 1, 4, -kInfinity};
  const auto gap = [&](std::vector<std::int32_t> list) {
    return selection_gap(choice, 0, list.data(), to_count(list.size()));
  };
  EXPECT_EQ(gap({2, 0, -1}), 0);
  EXPECT_EQ(gap({0, 1}), (4.0 - 1) / 5);
  EXPECT_EQ(gap({0}), kInfinity);        // one too few
  EXPECT_EQ(gap({0, 0}), kInfinity);     // one twice
  EXPECT_EQ(gap({0, 3}), kInfinity);     // one that cannot be seen yet
  EXPECT_EQ(gap({0, 4}), kInfinity);     // one that is not there
  EXPECT_EQ(gap({0, 1, 2}), kInfinity);  // one too many
}

TEST(ModelWitness, TakesATokenOnlyWhereTheLogitsAllowIt) {
  const double model[] = {1, 3, 2.9, -4}, engine[] = {1.02, 2.94, 2.97, -4};
  EXPECT_EQ(token_note(model, engine, 4, 1), "");
  EXPECT_EQ(token_note(model, engine, 4, 2), "");  // a near tie: 0.1 beside twice 0.07
  EXPECT_NE(token_note(model, engine, 4, 0).find("token 0 was appended"), std::string::npos);
  EXPECT_NE(token_note(model, engine, 4, 4).find("does not exist"), std::string::npos);
  EXPECT_NE(token_note(model, engine, 4, -1).find("does not exist"), std::string::npos);
}

}  // namespace model_witness_test
}  // namespace attnscope
