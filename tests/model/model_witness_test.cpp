// Runs beside ref.model: sound ones agree with it, and a witness that is told of another model than
// the session runs stands for a session that wires another model than it was told of.
#include "app/common/model_witness.h"

#include <gtest/gtest.h>

#include <functional>

#include "app/common/run.h"
#include "app/common/wiring.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace {

Scenario witnessed_scenario() {
  Scenario scenario = small_scenario(150, 6);
  scenario.model.index_topk = 16;  // so that short texts leave entries out
  return scenario;
}

std::optional<TapResult> parted(const std::function<void(Scenario&)>& change) {
  const Scenario scenario = witnessed_scenario();
  SessionOptions options;
  options.threads = 2;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  Scenario told = scenario;
  change(told);
  auto model = model_reference(told, nullptr);
  EXPECT_TRUE(model) << model.error().text();
  if (!session || !model) return {};
  ModelWitness witness(std::move(*model), nullptr);
  (*session)->set_observer(&witness);
  while (!(*session)->finished() && !witness.parted()) {
    const auto ok = (*session)->step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) break;
  }
  EXPECT_FALSE(witness.error());
  (*session)->set_observer(nullptr);
  return witness.parted();
}

TEST(ModelWitness, NamesTheLayerWhereAnotherModelIsWired) {
  const auto expect = [](const char* what, int layer, const std::string& tap,
                         const std::function<void(Scenario&)>& change) {
    SCOPED_TRACE(what);
    const auto found = parted(change);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->verdict, Verdict::kWrong);
    EXPECT_EQ(found->layer, layer);
    EXPECT_EQ(found->tap, tap);
    const Blame blamed = blame({*found}).front();
    EXPECT_NE(blamed.sentence().find("wiring"), std::string::npos) << blamed.sentence();
  };
  expect("frequencies", 1, "out.wiring", [](Scenario& s) { s.model.compress_rope_theta = 16001; });
  expect("YaRN", 1, "out.wiring", [](Scenario& s) { s.model.yarn_factor = 1; });
  expect("YaRN everywhere", 0, "out.wiring",
         [](Scenario& s) { s.model.switches.ratio0_yarn = true; });
  expect("top-k", 1, "indices.wiring", [](Scenario& s) { s.model.index_topk = 8; });
  expect("sinks", 0, "out.wiring", [](Scenario& s) { s.model.sink_shift = 1e-6; });
  expect("window", 0, "out.wiring", [](Scenario& s) { s.model.window = 127; });
  expect("epsilon", 0, "out.wiring", [](Scenario& s) { s.model.rms_eps = 1.1e-6; });
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
  EXPECT_EQ(run(References::kSim).left_out, "ref.exact does not run");
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

TEST(ModelWitness, TakesATokenOnlyWhereTheLogitsAllowIt) {
  const double model[] = {1, 3, 2.9, -4}, engine[] = {1.02, 2.94, 2.97, -4};
  EXPECT_EQ(token_note(model, engine, 4, 1), "");
  EXPECT_EQ(token_note(model, engine, 4, 2), "");  // a near tie: 0.1 beside twice 0.07
  EXPECT_NE(token_note(model, engine, 4, 0).find("token 0 was appended"), std::string::npos);
  EXPECT_NE(token_note(model, engine, 4, 4).find("does not exist"), std::string::npos);
  EXPECT_NE(token_note(model, engine, 4, -1).find("does not exist"), std::string::npos);
}

}  // namespace
}  // namespace attnscope
