// attnscope ess simulate: what it prints of generated and of recorded selections, and what it
// refuses.
#include <nlohmann/json.hpp>

#include "app/reports/ess_trace.h"
#include "engine/offload/simulate.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace ess_cli_test {

using nlohmann::json;

class EssCli : public CliTest {
 protected:
  static json simulated(std::vector<std::string> words) {
    words.insert(words.begin(), {"ess", "simulate"});
    words.emplace_back("--json");
    const Outcome done = run(words);
    EXPECT_EQ(done.code, 0) << done.err;
    return json::parse(done.out, nullptr, false);
  }
  std::string recorded(const std::string& scenario, std::vector<std::string> more) const {
    std::string capture = path(scenario + ".acap");
    std::vector<std::string> words{"record",  scenario, "--references", "none",
                                   "--force", "-o",     capture};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome done = run(words);
    EXPECT_EQ(done.code, 0) << done.err;
    return capture;
  }
  static void expect_refused(const std::vector<std::string>& words, int code,
                             std::initializer_list<const char*> parts) {
    std::vector<std::string> all{"ess", "simulate"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome done = run(all);
    EXPECT_EQ(done.code, code) << done.out << done.err;
    for (const char* part : parts) {
      EXPECT_NE(done.err.find(part), std::string::npos) << part << "\n" << done.err;
    }
  }
};

TEST_F(EssCli, GeneratedNumbersAreThoseOfTheLibrary) {
  const json out = simulated(
      {"generate", "--context", "600",  "--batch",   "2",    "--top-k",      "40", "--overlap",
       "0.7",      "--steps",   "6",    "--layers",  "2",    "--seed",       "9",  "--ratio",
       "0.2,0.5",  "--policy",  "fifo", "--warm-up", "cold", "--preattn-us", "0.5"});
  const auto trace = generated_trace(
      {.context = 600, .batch = 2, .topk = 40, .steps = 6, .layers = 2, .overlap = 0.7, .seed = 9});
  ASSERT_TRUE(trace) << trace.error().text();
  EXPECT_EQ(out["format"], "attnscope-ess");
  EXPECT_EQ(out["source"], trace->source);
  EXPECT_EQ(out["constants"]["preattn-us"]["assumed"], 0.5);
  ASSERT_EQ(out["ratios"].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    OffloadOptions options{.ratio = i == 0 ? 0.2 : 0.5, .policy = PoolPolicy::kFifo, .warm = false};
    options.constants.preattn_us = 0.5;
    const auto expected = simulate_offload(*trace, options);
    ASSERT_TRUE(expected) << expected.error().text();
    const json& row = out["ratios"][i];
    EXPECT_EQ(row["hits"], expected->total.hits);
    EXPECT_EQ(row["misses"], expected->total.misses);
    EXPECT_GT(expected->total.misses, 0);
    EXPECT_EQ(row["pool_rows"], expected->pool_rows);
    EXPECT_EQ(row["bytes_in"], expected->bytes_in);
    EXPECT_EQ(row["bytes_back"], 2 * 2 * 6 * 656);
    EXPECT_DOUBLE_EQ(row["modelled_us"]["dba"].get<double>(), *expected->us[3]);
    EXPECT_DOUBLE_EQ(row["modelled_best_us"].get<double>(), expected->best_us);
    EXPECT_DOUBLE_EQ(row["modelled_tokens_per_s"]["da"].get<double>(),
                     expected->throughput(*expected->us[2]));
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_FALSE(row["layers"][k].contains("steps"));
      EXPECT_EQ(row["layers"][k]["best"], overlap_name(expected->layers[k].best));
      EXPECT_DOUBLE_EQ(row["layers"][k]["overlap"].get<double>(), *expected->layers[k].overlap);
    }
  }
}

TEST_F(EssCli, WhatMissesStepByStepAndInHalves) {
  const std::vector<std::string> words{
      "generate", "--context", "300", "--batch", "3",   "--top-k",  "40",        "--steps",
      "4",        "--layers",  "2",   "--ratio", "0.2", "--attend", "none,1=dba"};
  auto by_step = words;
  by_step.emplace_back("--by-step");
  const json out = simulated(by_step);
  EXPECT_EQ(out["attend"], "none,1=dba");
  const auto trace =
      generated_trace({.context = 300, .batch = 3, .topk = 40, .steps = 4, .layers = 2});
  const auto expected =
      simulate_offload(*trace, {.ratio = 0.2, .attend = *overlap_choice("none,1=dba", {{0, 1}})});
  const auto whole = simulate_offload(*trace, {.ratio = 0.2});
  ASSERT_TRUE(expected && whole);
  EXPECT_EQ(expected->layers[0].total.misses, whole->layers[0].total.misses);
  // Rows of the first half take the place of some that the second would have found.
  EXPECT_GT(expected->layers[1].total.misses, whole->layers[1].total.misses);
  const json& layers = out["ratios"][0]["layers"];
  for (std::size_t k = 0; k < 2; ++k) {
    ASSERT_EQ(layers[k]["steps"].size(), 4u);
    for (std::size_t s = 0; s < 4; ++s) {
      EXPECT_EQ(layers[k]["steps"][s]["misses"], expected->layers[k].steps[s].misses);
      EXPECT_EQ(layers[k]["steps"][s]["overlap"].is_null(), s == 0);
    }
  }
  std::vector<std::string> all{"ess", "simulate"};
  all.insert(all.end(), by_step.begin(), by_step.end());
  const Outcome said = run(all);
  EXPECT_NE(said.out.find("modelled tokens/s, all layers:"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("by step: missed"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("layers attend: none,1=dba"), std::string::npos) << said.out;
  expect_refused({"generate", "--attend", "7=da"}, 2, {"--attend", "layer 7 selects no rows"});
}

TEST_F(EssCli, WordsNameTheSourceAndThatTimesAreModelled) {
  const Outcome done = run({"ess", "simulate", "generate", "--context", "500", "--top-k", "20",
                            "--steps", "3", "--layers", "1", "--ratio", "0.25", "--merge-us", "7"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out.find("generated: context 500, batch 1, top-k 20, overlap 0.85, steps 3, "
                          "layers 1, seed 1\n"),
            0u)
      << done.out;
  for (const char* part :
       {"3 decode steps, 1 request, 1 layer that select; 503 rows a layer of 656 B each",
        "a MODEL whose constants are assumed, not measured", "merge-us 7 us", "PreAttn",
        "  0.25       126"}) {
    EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
  }
  const Outcome help = run({"ess", "simulate", "--help"});
  EXPECT_NE(help.out.find("assumed, not measured (37)"), std::string::npos) << help.out;
}

TEST_F(EssCli, ACaptureOfTokenRows) {
  const std::string capture = recorded("tiny-v3.2", {"--rows", "all", "--decode-steps", "3"});
  const json out = simulated({capture, "--ratio", "0.2,1"});
  EXPECT_EQ(out["source"], "capture " + capture + " of tiny-v3.2");
  EXPECT_EQ(out["row_bytes"], 656);
  EXPECT_EQ(out["index_bytes"], 132);
  // A request that decodes writes a row in each layer, whatever it selects: as many bytes for each
  // pool, while the larger one misses less.
  const json &small = out["ratios"][0], &all = out["ratios"][1];
  EXPECT_EQ(small["written"], all["written"]);
  EXPECT_GT(small["misses"], all["misses"]);
  EXPECT_EQ(all["evictions"], 0);
  EXPECT_EQ(all["pool_rows"], out["rows"]);
  EXPECT_EQ(small["hits"].get<int>() + small["misses"].get<int>(),
            all["hits"].get<int>() + all["misses"].get<int>());

  // The first decode step against the tap itself.
  const auto opened = Capture::open(capture);
  ASSERT_TRUE(opened);
  const auto trace = selections_of(**opened);
  ASSERT_TRUE(trace) << trace.error().text();
  const SelectionStep& step = trace->steps.front();
  const auto kept = (*opened)->trace(step.step);
  ASSERT_TRUE(kept && *kept);
  std::int64_t decoding = 0;
  for (std::int64_t t = 0; t < (*kept)->metadata.num_tokens_in_step(); ++t) {
    const auto request = static_cast<std::size_t>((*kept)->request_of(t));
    const std::int64_t position = (*kept)->metadata.positions[static_cast<std::size_t>(t)];
    if (position < (*opened)->info()->prompt_tokens[request]) continue;
    const HostRow own{static_cast<std::int32_t>(request), static_cast<std::int32_t>(position)};
    EXPECT_EQ(step.layers[0].written.at(static_cast<std::size_t>(decoding)), own);
    ++decoding;
  }
  EXPECT_EQ(step.tokens, decoding);
  EXPECT_GT(decoding, 0);
  for (const HostRow& row : step.layers[0].selected) EXPECT_LT(row.row, trace->context);

  expect_refused({capture, "--seed", "2"}, 2, {"--seed", "'generate' alone"});
}

TEST_F(EssCli, ACaptureOfCompressedEntries) {
  const std::string capture = recorded("default", {"--rows", "all", "--decode-steps", "2"});
  const json out = simulated({capture, "--ratio", "1"});
  // Two layers of the tiny model have entries of 4 tokens, and select among them.
  ASSERT_EQ(out["ratios"][0]["layers"].size(), 2u);
  EXPECT_EQ(out["ratios"][0]["misses"].get<int>() + out["ratios"][0]["hits"].get<int>() > 0, true);
  EXPECT_GT(out["context"], 500);  // of 2104 tokens and more
  EXPECT_LT(out["context"], 540);
  // Only every fourth token completes an entry.
  EXPECT_LT(out["ratios"][0]["written"], out["steps"]);
  expect_refused({capture, "--ratio", "0.1"}, 3,
                 {"--ratio 0.1: step ", "is too small", "the largest step needs ", "or more"});
}

TEST_F(EssCli, WhatIsMissingIsSaidWithWhatToRecord) {
  expect_refused({recorded("tiny-llama", {"--steps", "2"})}, 3,
                 {"no layer of tiny-llama that ran has an indexer", "tiny-v3.2", "--rows all"});
  expect_refused({recorded("tiny-v3.2", {"--steps", "6", "--rows", "2"})}, 3,
                 {"keeps 2 of ", "--rows all"});
  expect_refused({recorded("tiny-v3.2", {"--steps", "6", "--level", "summary"})}, 3,
                 {"holds no selections", "--level tables"});
  expect_refused({recorded("tiny-v3.2", {"--steps", "1", "--rows", "all"})}, 3,
                 {"no token behind a prompt", "--decode-steps"});
  expect_refused({path("none")}, 3, {"no such capture"});
}

TEST_F(EssCli, NumbersOutOfRangeAreUsage) {
  expect_refused({"generate", "--ratio", "1.5"}, 2, {"--ratio 1.5: out of range", "at most 1"});
  expect_refused({"generate", "--ratio", "0"}, 2, {"--ratio 0: out of range"});
  expect_refused({"generate", "--top-k", "0"}, 2, {"--top-k 0: out of range"});
  expect_refused({"generate", "--overlap", "2"}, 2, {"--overlap 2: out of range"});
  expect_refused({"generate", "--policy", "random"}, 2, {"--policy"});
  expect_refused({"generate", "--host-to-device", "0"}, 2, {"--host-to-device"});
  expect_refused({"generate", "--context", "100", "--top-k", "50", "--ratio", "0.1"}, 3,
                 {"the largest step needs 50 of 164 rows: --ratio 0.3049 or more"});
  EXPECT_EQ(run({"ess"}).code, 2);
}

TEST_F(EssCli, PoolsThatNobodyAskedForMayBeTooSmall) {
  const Outcome twice = run({"ess", "simulate", "generate", "--ratio", "0.5,0.5"});
  EXPECT_EQ(twice.code, 3) << twice.out;
  EXPECT_NE(twice.err.find("--ratio 0.5: it is there twice"), std::string::npos) << twice.err;
  const std::vector<std::string> short_ones = {"ess",  "simulate", "generate", "--context",
                                               "4096", "--top-k",  "1000",     "--steps",
                                               "2",    "--layers", "1"};
  const Outcome done = run(short_ones);
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("left out: pools 0.1, 0.2, as the largest step needs "),
            std::string::npos)
      << done.out.substr(0, 400);
  std::vector<std::string> asked = short_ones;
  asked.insert(asked.end(), {"--ratio", "0.1,0.4"});
  EXPECT_EQ(run(asked).code, 3) << "what was asked for is not left out";
}

TEST_F(EssCli, APoolOfSoManyRows) {
  const json out = simulated({"generate", "--context", "500", "--top-k", "20", "--steps", "3",
                              "--layers", "1", "--pool-rows", "50"});
  ASSERT_EQ(out["ratios"].size(), 1u);
  EXPECT_EQ(out["ratios"][0]["pool_rows"], 50);
  EXPECT_NEAR(out["ratios"][0]["ratio"].get<double>(), 50.0 / 503, 1e-9);
}

// Of some requests it is refused; of some steps' values it has all selections.
TEST_F(EssCli, CapturesOfAPart) {
  expect_refused({recorded("ess", {"--request", "long", "--rows", "all"})}, 3,
                 {"one that is missing belongs to the trace", "without --request"});
  const json all = simulated({recorded("ess", {"--rows", "all"}), "--ratio", "0.3"});
  const json some =
      simulated({recorded("ess", {"--level", "full", "--at-steps", "0-4", "--rows", "all"}),
                 "--ratio", "0.3"});
  EXPECT_GT(all["ratios"][0]["misses"], 0);
  EXPECT_EQ(some["ratios"], all["ratios"]);
}

TEST_F(EssCli, ClaimsNameTheirSources) {
  const std::string capture = recorded("tiny-v3.2", {"--rows", "all", "--decode-steps", "3"});
  const Outcome done = run({"ess", "claims", capture, "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out, nullptr, false);
  ASSERT_EQ(out["claims"].size(), 4u);
  EXPECT_EQ(out["claims"][0]["source"], "capture " + capture + " of tiny-v3.2");
  EXPECT_EQ(out["claims"][1]["found"], "132 of 656 bytes: 20 %");
  EXPECT_EQ(out["claims"][1]["agreement"], "agrees");
  for (const json& claim : out["claims"]) {
    EXPECT_FALSE(claim["source"].get<std::string>().empty());
  }
  const Outcome without = run({"ess", "claims"});
  EXPECT_EQ(without.code, 0) << without.err;
  EXPECT_EQ(without.out.find("open     consecutive selections"), 0u) << without.out;
}

}  // namespace ess_cli_test
}  // namespace attnscope
