// DeepSeek-V4 on ranks that share requests: rows of windows and entries are dealt out, attention
// reads of every list what is a rank's own, and what ranks do wrong is named.
#include <fmt/format.h>

#include "engine/config/scenario.h"
#include "engine/family/context_check.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/mutants/rank_mutants.h"
#include "tests/blame/tiny_session.h"
#include "tests/parallel/rank_sessions.h"

namespace attnscope {
namespace context_lists_test {

using rank_sessions::blamed_of;
using rank_sessions::expect_kept;
using rank_sessions::expect_same_after_going_back;
using rank_sessions::expect_same_attention;
using rank_sessions::expect_sent;
using rank_sessions::have_references;
using rank_sessions::make;
using rank_sessions::run_right;

// A window, a C4A and a C128A layer; a chunk beside a chunk, then decodes.
Scenario shared(const ContextSplit& split, const char* profile = "vllm") {
  Scenario scenario = tiny_scenario(7, 396, profile);
  scenario.context = split;
  scenario.model = shared_config(scenario.model, split);
  return scenario;
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
    ASSERT_NO_FATAL_FAILURE(expect_same_attention(*one, *ranks));
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
    expect_sent(record, layer, model.num_layers());
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
  ASSERT_NO_FATAL_FAILURE(expect_same_after_going_back(*make(shared({4, 1}))));
}

TEST(ContextLists, AKeptSessionGoesOn) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  ASSERT_NO_FATAL_FAILURE(expect_kept(shared({4, 1}), "lists"));
}

TEST(ContextLists, PlantedBugsAreNamed) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  for (const RankMutant& mutant : rank_mutants()) {
    SCOPED_TRACE(mutant.name);
    const Blame first = blamed_of(shared({2, 1}), mutant.name);
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
