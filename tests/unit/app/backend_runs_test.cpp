// One model by every backend that takes it: which ones run, on what pages and lists, and that they
// agree; that a backend whose lists are wrong is found.
#include "app/reports/backend_runs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/wiring/wiring.h"
#include "engine/family/models.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace backend_runs_test {

Scenario scenario_of_model(const char* model) {
  Scenario scenario = small_scenario(24, 2);
  scenario.model = *preset(model);
  return scenario;
}

const BackendRun& run_of(const BackendRuns& runs, std::string_view name) {
  const auto found = std::ranges::find(runs.runs, name, &BackendRun::name);
  EXPECT_NE(found, runs.runs.end()) << name;
  return found == runs.runs.end() ? runs.runs.front() : *found;
}

TEST(BackendRuns, FiveBackendsComputeOneModel) {
  const auto runs = run_backends(scenario_of_model("tiny-mha"), all_lanes(), {});
  ASSERT_TRUE(runs) << runs.error().text();
  for (const char* name :
       {"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "CPU_ATTN"}) {
    SCOPED_TRACE(name);
    const BackendRun& run = run_of(*runs, name);
    EXPECT_EQ(run.refused, "");
    EXPECT_GT(run.values, 5000);
    EXPECT_EQ(run.compared, run.values);
    EXPECT_EQ(run.calls, run.by_form);
    EXPECT_GE(run.calls, 3 * 2);
    EXPECT_LE(run.of_tolerance, 1);
    EXPECT_NE(run.verdict, Verdict::kWrong);
    EXPECT_GT(run.tokens, 0);
    EXPECT_EQ(run.changed, 0);
    EXPECT_LT(run.apart, 0.05);
  }
  EXPECT_EQ(run_of(*runs, "FLASH_ATTN").differing, 0);
  EXPECT_EQ(run_of(*runs, "FLASH_ATTN").layout, "NHD");
  EXPECT_EQ(run_of(*runs, "CPU_ATTN").layout, "HND");
  EXPECT_EQ(run_of(*runs, "CPU_ATTN").platform, "cpu");
  EXPECT_EQ(run_of(*runs, "FLASHINFER").metadata, MetadataForm::kPagedIndices);
  EXPECT_EQ(run_of(*runs, "FLEX_ATTENTION").mask, "kv_idx <= q_idx");
  EXPECT_EQ(run_of(*runs, "TRITON_ATTN").mask, "");
  // Its pages have one token each; who takes none of this size has its own.
  EXPECT_EQ(run_of(*runs, "FLASH_ATTN").block_size, 16);
  EXPECT_EQ(run_of(*runs, "CPU_ATTN").block_size, 1);
  const BackendRun& packed = run_of(*runs, "TURBOQUANT");
  EXPECT_NE(packed.refused.find("cache dtype"), std::string::npos) << packed.refused;
  EXPECT_NE(describe(*runs).find("5 backends"), std::string::npos) << describe(*runs);
  EXPECT_EQ(backend_runs_json(*runs)["backends"].size(), runs->runs.size());
  EXPECT_NE(backend_runs_text(*runs).find("FLASHINFER (native)"), std::string::npos);
}

// On Blackwell FlashInfer is first and wants the rows of a head together; layers with a window are
// handed lists of their own group, and layers that share rows those of the layer that has them.
TEST(BackendRuns, TakesLayoutsWindowsAndSharedRows) {
  const auto mqa = run_backends(scenario_of_model("tiny-mqa"), all_lanes(), {.gpu = "sm_100"});
  ASSERT_TRUE(mqa) << mqa.error().text();
  EXPECT_EQ(mqa->runs.front().name, "FLASHINFER");
  EXPECT_EQ(mqa->runs.front().version, "TRTLLM");
  EXPECT_EQ(mqa->runs.front().layout, "HND");
  EXPECT_EQ(mqa->runs.front().refused, "");
  for (const char* model : {"tiny-gemma", "tiny-kvshare", "tiny-llama4"}) {
    SCOPED_TRACE(model);
    const auto runs = run_backends(scenario_of_model(model), all_lanes(), {});
    ASSERT_TRUE(runs) << runs.error().text();
    int ran = 0;
    for (const BackendRun& run : runs->runs) {
      if (!run.refused.empty()) continue;
      ++ran;
      EXPECT_NE(run.verdict, Verdict::kWrong) << run.name;
      EXPECT_EQ(run.changed, 0) << run.name;
      EXPECT_GT(run.by_form, 0) << run.name;
    }
    EXPECT_GE(ran, 2);
  }
}

// No backend of vLLM has them.
TEST(BackendRuns, FirstTokensInSixteenBitsAreRefusedByAll) {
  Scenario scenario = scenario_of_model("tiny-llama-fp8");
  ASSERT_TRUE(set_first_tokens(scenario.model, 24));
  const auto runs = run_backends(scenario, all_lanes(), {});
  ASSERT_TRUE(runs) << runs.error().text();
  for (const BackendRun& run : runs->runs) {
    EXPECT_NE(run.refused.find("first tokens"), std::string::npos) << run.name << run.refused;
  }
  EXPECT_NE(describe(*runs).find("nothing was computed"), std::string::npos) << describe(*runs);
}

TEST(BackendRuns, FindsALaneThatIsWrong) {
  const auto runs =
      run_backends(scenario_of_model("tiny-gemma"), all_lanes(),
                   {.gpu = "cpu", .lanes = {"paged_attention=mutant:kv_group_off_by_one"}});
  ASSERT_TRUE(runs) << runs.error().text();
  const BackendRun& run = run_of(*runs, "CPU_ATTN");
  EXPECT_EQ(run.verdict, Verdict::kWrong);
  EXPECT_GT(run.of_tolerance, 1);
  EXPECT_NE(describe(*runs).find("wrong"), std::string::npos) << describe(*runs);
}

TEST(BackendRuns, RefusesWhatNoRuleChooses) {
  for (const char* model : {"tiny", "tiny-bert", "tiny-t5"}) {
    const auto runs = run_backends(scenario_of_model(model), all_lanes(), {});
    ASSERT_FALSE(runs) << model;
    EXPECT_NE(runs.error().text().find("dense attention over paged rows"), std::string::npos);
  }
  const auto gpu = run_backends(scenario_of_model("tiny-mha"), all_lanes(), {.gpu = "sm_1"});
  EXPECT_FALSE(gpu);
  StudyProgress progress;
  progress.stopped = true;
  const auto stopped = run_backends(scenario_of_model("tiny-mha"), all_lanes(), {}, &progress);
  ASSERT_FALSE(stopped);
  EXPECT_NE(stopped.error().text().find("it was stopped"), std::string::npos);
}

using BackendRunsCli = CliTest;

TEST_F(BackendRunsCli, ComparesAndRefuses) {
  const Outcome json = run({"backends", "compare", "tiny-mha", "--gpu", "cpu", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto parsed = nlohmann::json::parse(json.out);
  EXPECT_EQ(parsed["format"], "attnscope-backend-runs");
  EXPECT_EQ(parsed["backends"][0]["backend"], "CPU_ATTN");
  EXPECT_EQ(parsed["backends"][0]["layout"], "HND");
  const Outcome none = run({"backends", "compare", "tiny-llama-first16", "--gpu", "cpu"});
  EXPECT_EQ(none.code, 3) << "nothing ran";
  EXPECT_NE(none.out.find("0 backends that take it"), std::string::npos) << none.out;
  const Outcome refused = run({"backends", "compare", "default"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_NE(refused.err.find("choose a decoder"), std::string::npos) << refused.err;
}

}  // namespace backend_runs_test
}  // namespace attnscope
