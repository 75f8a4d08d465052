// Sessions whose sparse rows lie in host memory: they compute what sessions without compute, bit
// for bit, are judged right, and count the hits and misses that the simulator counts of their
// capture.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "app/reports/ess_trace.h"
#include "app/reports/tap_export.h"
#include "engine/io/content_hash.h"
#include "engine/offload/simulate.h"
#include "engine/tensorfile/tensor_file.h"
#include "engine/trace/tap_result.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/small_scenario.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace ess_session_test {

struct Tier {
  double ratio;
  PoolPolicy policy = PoolPolicy::kLru;
  int warm = 32;
};

// DeepSeek-V4 with entries of four tokens, of which few are selected; or V3.2.
Scenario v4(std::int64_t budget = 64) {
  Scenario s = small_scenario(230, 12);
  s.model.index_topk = 16;
  s.limits.token_budget = budget;
  return s;
}
Scenario v32(std::int64_t budget = 64) {
  Scenario s = small_scenario(150, 10);
  s.model = *preset("tiny-v3.2", {});
  s.model.index_topk = 16;
  s.limits.token_budget = budget;
  return s;
}
Scenario with(Scenario s, const Tier& tier) {
  s.ess = {tier.ratio, tier.policy, tier.warm, {}};
  s.model.host_rows = true;
  return s;
}

struct Ran {
  std::vector<std::uint64_t> outputs;  // of attention and of the head, op by op
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::vector<PoolCounts>> pools;
  std::int64_t wrong = 0, preemptions = 0, misses = 0, hits = 0, evictions = 0;
};

std::uint64_t hash_of(const as_tensor& t) { return content_hash(t.data, tensor_bytes(t)); }

Ran run_all(const Scenario& scenario, References references = References::kNone) {
  Ran ran;
  auto session = small_session(references, scenario);
  while (!session->finished()) {
    const auto ok = session->op();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) break;
    if (session->at_boundary()) {
      const StepRecord& record = session->history().back();
      ran.pools.push_back(record.pools);
      for (const TapResult& r : record.results) {
        if (r.verdict != Verdict::kWrong) continue;
        if (ran.wrong++ < 3)
          ADD_FAILURE() << as_op_find(r.op)->name << " " << r.tap << " " << r.note;
      }
    }
    if (!session->ran_any()) continue;
    OpParams params = session->last_params();
    if (as_op_role(params.op()) == AS_ROLE_ATTENTION) {
      ran.outputs.push_back(hash_of(params.tensor_named("o")));
    } else if (params.op() == AS_OP_LM_HEAD) {
      ran.outputs.push_back(hash_of(params.tensor_named("y")));
    }
  }
  for (const Request& r : session->serving().requests()) ran.tokens.push_back(r.tokens);
  ran.preemptions = session->serving().totals().preemptions;
  for (const auto& step : ran.pools) {
    for (const PoolCounts& c : step) {
      ran.misses += c.misses;
      ran.hits += c.hits;
      ran.evictions += c.evictions;
    }
  }
  return ran;
}

void expect_same_outputs(const Scenario& plain, const std::vector<Tier>& tiers,
                         std::int64_t preemptions = 0) {
  const Ran without = run_all(plain);
  EXPECT_TRUE(without.pools.front().empty());
  for (const Tier& tier : tiers) {
    SCOPED_TRACE(
        fmt::format("ratio {}, {}, warm {}", tier.ratio, pool_policy_name(tier.policy), tier.warm));
    const Ran ran = run_all(with(plain, tier));
    EXPECT_EQ(ran.outputs, without.outputs);
    EXPECT_EQ(ran.tokens, without.tokens);
    EXPECT_GT(ran.hits, 0);
    EXPECT_GT(ran.misses, 0);
    EXPECT_GE(ran.preemptions, preemptions);
  }
}

TEST(EssSession, ComputesTheSameBitsOfV4) {
  expect_same_outputs(v4(), {{0.7}, {0.7, PoolPolicy::kFifo}, {0.8, PoolPolicy::kLru, 0}});
}
TEST(EssSession, ComputesTheSameBitsOfV32) {
  expect_same_outputs(v32(), {{0.3}, {0.3, PoolPolicy::kFifo, 4}, {0.6, PoolPolicy::kLru, 0}});
}
TEST(EssSession, ComputesTheSameBitsWithOtherChunks) {
  expect_same_outputs(v4(37), {{0.75}});
  expect_same_outputs(v32(23), {{0.35}});
}

// Requests that share blocks lose theirs, and compute again what they had.
TEST(EssSession, ComputesTheSameBitsAfterPreemption) {
  auto scenario = load_scenario("pressure");
  ASSERT_TRUE(scenario) << scenario.error().text();
  scenario->model.index_topk = 16;
  expect_same_outputs(*scenario, {{0.3}, {0.4, PoolPolicy::kFifo}}, 1);
}

TEST(EssSession, IsJudgedRight) {
  for (const Scenario& s : {with(v4(), {0.7}), with(v32(), {0.3, PoolPolicy::kFifo})}) {
    const Ran ran = run_all(s, References::kSim);
    EXPECT_EQ(ran.wrong, 0);
    EXPECT_GT(ran.evictions, 0);
  }
}

// Rows that come into a pool are no token's, so that no series has them.
TEST(EssSession, ExportsTheTapsOfTokens) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("ess-" + std::to_string(getpid()))).string();
  TapExportOptions options;
  options.taps = {"exchange_rows"};
  const auto made = export_taps(with(v32(), {0.3}), all_lanes(), options, file, {});
  ASSERT_TRUE(made) << made.error().text();
  const auto opened = TensorFile::open(file);
  ASSERT_TRUE(opened);
  const auto ends = [&](const char* tap) {
    return std::ranges::any_of(opened->tensors(),
                               [&](const TensorEntry& t) { return t.name.ends_with(tap); });
  };
  EXPECT_TRUE(ends("exchange_rows.slots"));
  EXPECT_TRUE(ends("exchange_rows.pages"));
  EXPECT_FALSE(ends("exchange_rows.pool"));
  std::filesystem::remove(file);
  // Who asks for them is told, and gets no file without them.
  options.taps = {"all", "attn_norm.y", "exchange_rows.pool"};
  const auto named = export_taps(with(v32(), {0.3}), all_lanes(), options, file, {});
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, AS_BAD_INPUT);
  EXPECT_EQ(named.error().message,
            "--taps exchange_rows.pool: nothing of it was there in these steps");
  EXPECT_NE(named.error().hint.find("exchange_rows.slots"), std::string::npos)
      << named.error().hint;
  EXPECT_FALSE(std::filesystem::exists(file));
  // Nor of an op that these layers have not.
  options.taps = {"compress_insert"};
  const auto other = export_taps(with(v32(), {0.3}), all_lanes(), options, file, {});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, AS_BAD_INPUT);
  EXPECT_NE(other.error().text().find("--taps compress_insert: nothing"), std::string::npos);
}

TEST(EssSession, GoesBackToTheSamePool) {
  auto session = small_session(References::kNone, with(v32(), {0.3}));
  std::vector<std::vector<PoolCounts>> pools;
  const auto run_on = [&] {
    while (!session->finished()) {
      ASSERT_TRUE(session->step());
      pools.push_back(session->history().back().pools);
    }
  };
  run_on();
  const auto first = pools;
  const std::vector<std::int32_t> tokens = session->serving().requests()[0].tokens;
  const auto back = static_cast<std::int64_t>(first.size()) - 5;
  ASSERT_TRUE(session->seek({back, -1, 0, false}));
  pools.assign(first.begin(), first.begin() + back);
  run_on();
  EXPECT_EQ(pools, first);
  EXPECT_EQ(session->serving().requests()[0].tokens, tokens);
}

TEST(EssSession, APoolThatIsTooSmallIsSaid) {
  auto session = small_session(References::kNone, with(v32(), {0.02}));
  Result<void> ok;
  while (ok && !session->finished()) ok = session->step();
  ASSERT_FALSE(ok);
  EXPECT_NE(ok.error().text().find("is too small for a step that needs"), std::string::npos)
      << ok.error().text();
  EXPECT_NE(ok.error().text().find("give \"ess\" a larger ratio"), std::string::npos);
}

class EssCapture : public CliTest {};

// What the session counted, step by step and layer by layer, against the policy on its selections.
TEST_F(EssCapture, HasTheHitsAndMissesOfTheSimulator) {
  const std::string capture = path("ess.acap");
  const Outcome done =
      run({"record", "ess", "--rows", "all", "--references", "none", "-o", capture});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto opened = Capture::open(capture);
  ASSERT_TRUE(opened) << opened.error().text();
  const auto trace = selections_of(**opened);
  ASSERT_TRUE(trace) << trace.error().text();
  const auto scenario = load_scenario("ess");
  ASSERT_TRUE(scenario);
  std::int64_t rows = 0;
  for (const ScenarioRequest& r : scenario->requests) {
    rows += static_cast<std::int64_t>(r.tokens.size()) + r.max_new_tokens;
  }
  const auto simulated =
      simulate_offload(*trace, {.pool_rows = pool_rows(scenario->ess.ratio, rows)});
  ASSERT_TRUE(simulated) << simulated.error().text();
  std::int64_t compared = 0;
  for (std::size_t s = 0; s < trace->steps.size(); ++s) {
    const auto summary =
        std::ranges::find((*opened)->summaries(), trace->steps[s].step,
                          [](const std::shared_ptr<const StepSummary>& one) { return one->step; });
    ASSERT_NE(summary, (*opened)->summaries().end());
    ASSERT_EQ((*summary)->pools.size(), trace->layers.size());
    for (std::size_t i = 0; i < trace->layers.size(); ++i) {
      const PoolCounts& counted = (*summary)->pools[i];
      const OffloadCounts& due = simulated->layers[i].steps[s];
      EXPECT_EQ(counted.layer, trace->layers[i]);
      EXPECT_EQ(counted.hits, due.hits) << "step " << trace->steps[s].step;
      EXPECT_EQ(counted.misses, due.misses) << "step " << trace->steps[s].step;
      EXPECT_EQ(counted.written, due.written);
      EXPECT_EQ(counted.evictions, due.evictions);
      ++compared;
    }
  }
  EXPECT_GT(compared, 20);
  EXPECT_GT(simulated->total.misses, 0);
  EXPECT_GT(simulated->total.hits, simulated->total.misses);
}

}  // namespace ess_session_test
}  // namespace attnscope
