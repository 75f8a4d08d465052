// DeepSeek-V4 on ranks that share requests: rows of windows and entries are dealt out, attention
// reads of every list what is a rank's own, and what ranks do wrong is named.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "engine/config/scenario.h"
#include "engine/family/context_check.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/mutants/rank_mutants.h"
#include "engine/session/persist/session_file.h"
#include "engine/session/step/context_parallel.h"
#include "kernels/cpu/codec.h"
#include "tests/blame/tiny_session.h"

namespace attnscope {
namespace context_lists_test {

// A window, a C4A and a C128A layer; a chunk beside a chunk, then decodes.
Scenario shared(const ContextSplit& split, const char* profile = "vllm") {
  Scenario scenario = tiny_scenario(7, 396, profile);
  scenario.context = split;
  scenario.model = shared_config(scenario.model, split);
  return scenario;
}

std::unique_ptr<Session> make(const Scenario& scenario, References references = References::kSim,
                              const std::vector<std::string>& lanes = {"cpu"}) {
  SessionOptions options;
  options.references = references;
  options.lanes = lanes;
  options.threads = 2;
  options.rewind_every = 2;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

bool have_references() { return all_lanes().find("ref.sim") != nullptr; }

// Runs to the end; returns the elements of attention that were compared.
std::int64_t run_right(Session& session) {
  std::int64_t attended = 0;
  while (!session.finished()) {
    const auto ok = session.step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) return 0;
    for (const TapResult& r : session.history().back().results) {
      EXPECT_NE(r.verdict, Verdict::kWrong) << r.tap << ": " << r.note;
      if (ContextParallel::attends(r.op)) attended += r.elements;
    }
  }
  return attended;
}

TEST(ContextLists, EveryTapIsRightOnAnyNumberOfRanks) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  for (const ContextSplit& split :
       {ContextSplit{2, 1}, ContextSplit{3, 1}, ContextSplit{4, 2}, ContextSplit{8, 1}}) {
    SCOPED_TRACE(fmt::format("{} ranks by {}", split.ranks, split.interleave));
    auto session = make(shared(split));
    ASSERT_NE(session, nullptr);
    EXPECT_GT(run_right(*session), 0);
  }
}

// DeepSeek's numbers, a plan of attention, rows gathered before: what is in a call stays in it.
TEST(ContextLists, EveryTapIsRightUnderEachProfile) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  for (const char* profile : {"deepseek", "vllm,attention_plan=own", "vllm,prefill=gathered",
                              "vllm,index_format=mxfp4"}) {
    SCOPED_TRACE(profile);
    auto session = make(shared({2, 1}, profile));
    ASSERT_NE(session, nullptr);
    EXPECT_GT(run_right(*session), 0);
  }
}

TEST(ContextLists, AdversarialListsAreDealtOutToo) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  Scenario scenario = shared({4, 1});
  scenario.adversarial_lists = true;
  auto session = make(scenario);
  ASSERT_NE(session, nullptr);
  EXPECT_GT(run_right(*session), 0);
}

TEST(ContextLists, ADraftLayerIsShared) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  Scenario scenario = shared({2, 1});
  const auto drafts = add_draft_layer(scenario.model);
  ASSERT_TRUE(drafts) << drafts.error().text();
  scenario.serving.drafts.tokens = 1;
  scenario.serving.drafts.by_model = true;
  auto session = make(scenario);
  ASSERT_NE(session, nullptr);
  EXPECT_GT(run_right(*session), 0);
}

// The first step of the first layer has the same inputs, so that attention is of the same numbers.
TEST(ContextLists, AttentionGivesWhatOneRankGives) {
  for (const int layer : {0, 1, 2}) {
    SCOPED_TRACE(layer);
    const auto of_layer = [&](const ContextSplit& split) {
      Scenario scenario = shared(split);
      scenario.model.layers = {layer};
      return make(scenario, References::kNone);
    };
    auto one = of_layer({1, 1});
    auto ranks = of_layer({4, 1});
    bool compared = false;
    while (one->cursor().layer <= 0 && !one->cursor().after_layers) {
      ASSERT_TRUE(one->op());
      ASSERT_TRUE(ranks->op());
      if (!one->ran_any() || one->last_params().op() != AS_OP_SPARSE_ATTENTION) continue;
      compared = true;
      const auto& x = one->last_params().get<as_sparse_attention_params>();
      const auto& y = ranks->last_params().get<as_sparse_attention_params>();
      double worst = 0, largest = 0, beside = 0;
      for (std::int64_t i = 0; i < as_tensor_numel(&x.lse); ++i) {
        worst =
            std::max(worst, std::abs(double{at<float>(x.lse)[i]} - double{at<float>(y.lse)[i]}));
      }
      EXPECT_LT(worst, 2e-5) << "LSEs are fp32";
      for (std::int64_t i = 0; i < as_tensor_numel(&x.o); ++i) {
        const double v = cpu::bf16_to_float(at<bf16_t>(x.o)[i].bits);
        const double w = cpu::bf16_to_float(at<bf16_t>(y.o)[i].bits);
        largest = std::max(largest, std::abs(v));
        beside = std::max(beside, std::abs(v - w));
      }
      // Each part is rounded to bf16, and so is the sum.
      EXPECT_LT(beside, 0x1p-7 * largest);
      EXPECT_GT(largest, 0);
    }
    EXPECT_TRUE(compared);
  }
}

TEST(ContextLists, MessagesAndBytesAreThosePlanned) {
  const Scenario scenario = shared({4, 1});
  auto session = make(scenario, References::kNone);
  const ModelConfig& model = scenario.model;
  while (!session->finished()) {
    ASSERT_TRUE(session->step());
    const StepRecord& record = session->history().back();
    const ExchangeCounts layer = planned_exchange(4, model.heads, 512, 512, record.tokens);
    for (int i = 0; i < kRankMessages; ++i) {
      EXPECT_EQ(record.exchanged[to_size(i)].messages,
                layer[to_size(i)].messages * model.num_layers());
      EXPECT_EQ(record.exchanged[to_size(i)].bytes, layer[to_size(i)].bytes * model.num_layers());
    }
  }
}

TEST(ContextLists, ShareTheRowsOfATensorParallelRank) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    Scenario scenario = shared({2, 1});
    scenario.parallel = {2, rank};
    auto session = make(scenario);
    ASSERT_NE(session, nullptr);
    EXPECT_GT(run_right(*session), 0);
  }
}

// Rows come back from the whole cache; the bytes of a step are the same as when it first ran.
TEST(ContextLists, GoingBackBringsTheRowsOfRanks) {
  auto session = make(shared({4, 1}));
  std::vector<std::uint64_t> digests;
  while (!session->finished()) {
    ASSERT_TRUE(session->step());
    digests.push_back(session->digest());
  }
  ASSERT_GE(digests.size(), 3u);
  for (const std::int64_t to : {1, 0, 2}) {
    ASSERT_TRUE(session->seek({to, -1, 0, false}));
    while (!session->finished()) {
      ASSERT_TRUE(session->step());
      const auto at = session->history().size() - 1;
      EXPECT_EQ(session->digest(), digests[at]) << at;
      const auto blamed = blame(session->history().back().results);
      ASSERT_TRUE(blamed.empty()) << blamed.front().sentence();
    }
  }
}

TEST(ContextLists, AKeptSessionGoesOn) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  const std::string file =
      (std::filesystem::path(::testing::TempDir()) / fmt::format("lists{}.session", ::getpid()))
          .string();
  const Scenario scenario = shared({4, 1});
  auto session = make(scenario);
  ASSERT_TRUE(session->step());
  ASSERT_TRUE(session->step());
  ASSERT_TRUE(save_session(*session, file, "key"));
  auto again = make(scenario);
  const auto loaded = load_session(*again, file, "key");
  std::filesystem::remove(file);
  ASSERT_TRUE(loaded) << loaded.error().text();
  while (!again->finished()) {
    ASSERT_TRUE(session->step());
    ASSERT_TRUE(again->step());
    EXPECT_EQ(again->digest(), session->digest());
    const auto blamed = blame(again->history().back().results);
    ASSERT_TRUE(blamed.empty()) << blamed.front().sentence();
  }
}

// The only one that the first steps with the bug in blame.
Blame blamed_of(const Scenario& scenario, const std::string& lane, int steps) {
  auto session = make(scenario, References::kSim, {"cpu", lane});
  std::vector<TapResult> results;
  for (int i = 0; session != nullptr && i < steps; ++i) {
    EXPECT_TRUE(session->step());
    const auto& of_step = session->history().back().results;
    results.insert(results.end(), of_step.begin(), of_step.end());
  }
  const std::vector<Blame> blamed = blame(results);
  std::string all;
  for (const Blame& b : blamed) all += "\n    " + b.sentence();
  EXPECT_EQ(blamed.size(), 1u) << all;
  EXPECT_TRUE(blamed.empty() || !blamed[0].cache) << all;
  return blamed.empty() ? Blame{} : blamed[0];
}

TEST(ContextLists, PlantedBugsAreNamed) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  for (const RankMutant& mutant : rank_mutants()) {
    SCOPED_TRACE(mutant.name);
    const Blame first = blamed_of(shared({2, 1}), fmt::format("schedule={}", mutant.name), 2);
    const bool inserts = mutant.shows == AS_OP_ROPE_KV_INSERT;
    EXPECT_EQ(first.op, inserts ? AS_OP_Q_ROPE_KV_INSERT : AS_OP_SPARSE_ATTENTION)
        << first.sentence();
    EXPECT_TRUE(first.first.tap.starts_with(std::string(mutant.tap) + kRankTap))
        << first.sentence();
  }
}

TEST(ContextLists, AScenarioSaysItForDeepSeekV4) {
  const auto parsed = [](const std::string& context) {
    return parse_scenario(
        R"({"version": 1, "model": {"preset": "tiny"}, "pool_blocks": 64, "context_parallel": )" +
            context + R"(, "requests": [{"name": "a", "text": "one two", "max_new_tokens": 2}]})",
        "dcp.json");
  };
  const auto good = parsed(R"({"ranks": 4})");
  ASSERT_TRUE(good) << good.error().text();
  EXPECT_EQ(good->context, (ContextSplit{4, 1}));
  const auto bad = parsed(R"({"ranks": 4, "interleave": 4})");
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().text().find("entries"), std::string::npos) << bad.error().text();
}

}  // namespace context_lists_test
}  // namespace attnscope
