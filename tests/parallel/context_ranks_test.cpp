// Sessions whose requests are dealt out over ranks: what attention gives is what one rank gives,
// messages are those that were planned, and what a rank does wrong is named.
#include <fmt/format.h>

#include "engine/config/scenario.h"
#include "engine/family/context_check.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/mutants/rank_mutants.h"
#include "tests/blame/dense_session.h"
#include "tests/blame/planted_around.h"
#include "tests/parallel/rank_sessions.h"
#include "tests/unit/app/host_device.h"

namespace attnscope {
namespace context_ranks_test {

using rank_sessions::blamed_of;
using rank_sessions::expect_kept;
using rank_sessions::expect_same_after_going_back;
using rank_sessions::expect_same_attention;
using rank_sessions::expect_sent;
using rank_sessions::have_references;
using rank_sessions::make;
using rank_sessions::run_right;

Scenario shared(const std::string& model, const ContextSplit& split) {
  Scenario scenario = dense_scenario(*preset(model));
  scenario.context = split;
  return scenario;
}

// Models that ranks can share: with windows, chunks, sinks, layers that read those of others, one
// KV head, as many as heads, latent rows.
std::vector<std::string> models() {
  std::vector<std::string> names;
  for (const std::string& name : dense_names()) {
    if (check_context(*preset(name), {2, 1})) names.push_back(name);
  }
  for (const std::string& name : preset_names()) {
    if (name.starts_with("tiny-") && preset(name)->family == "mla" &&
        check_context(*preset(name), {2, 1})) {
      names.push_back(name);
    }
  }
  return names;
}

TEST(ContextRanks, EveryTapIsRightOnAnyNumberOfRanks) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  EXPECT_GE(models().size(), 9u);
  int which = 0;
  for (const std::string& name : models()) {
    const ContextSplit other = which++ % 2 == 0 ? ContextSplit{4, 2} : ContextSplit{8, 1};
    for (const ContextSplit& split : {ContextSplit{2, 1}, other}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks by {}", name, split.ranks, split.interleave));
      auto session = make(shared(name, split));
      ASSERT_NE(session, nullptr);
      EXPECT_GT(run_right(*session), 0);
    }
  }
}

// The first step of the first layer has the same inputs, so that attention is of the same numbers.
TEST(ContextRanks, AttentionGivesWhatOneRankGives) {
  for (const std::string& name : models()) {
    SCOPED_TRACE(name);
    auto one = make(shared(name, {1, 1}), References::kNone);
    auto ranks = make(shared(name, {4, 1}), References::kNone);
    ASSERT_NO_FATAL_FAILURE(expect_same_attention(*one, *ranks));
  }
}

TEST(ContextRanks, MessagesAndBytesAreThosePlanned) {
  const Scenario scenario = shared("tiny-llama", {4, 2});
  auto session = make(scenario, References::kNone);
  const ModelConfig& model = scenario.model;
  while (!session->finished()) {
    ASSERT_TRUE(session->step());
    const StepRecord& record = session->history().back();
    const AttendedDims dims = attended_dims(model);
    const ExchangeCounts layer =
        planned_exchange(4, model.heads, dims.query, dims.value, record.tokens);
    expect_sent(record, layer, model.num_layers());
  }
  auto alone = make(shared("tiny-llama", {1, 1}), References::kNone);
  ASSERT_TRUE(alone->step());
  EXPECT_EQ(alone->history().back().exchanged, ExchangeCounts{});
  EXPECT_EQ(alone->context(), nullptr);
}

// Heads dealt out by tensor parallelism, the rows of each of its ranks by context: a group of ranks
// for the heads of the one that the session is.
TEST(ContextRanks, ShareTheRowsOfATensorParallelRank) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  for (const char* name : {"tiny-llama", "tiny-gptoss", "tiny-gemma", "tiny-v3", "tiny-v3.2"}) {
    for (const int rank : {0, 1}) {
      SCOPED_TRACE(fmt::format("{}, rank {}", name, rank));
      Scenario scenario = shared(name, rank == 0 ? ContextSplit{2, 1} : ContextSplit{4, 2});
      scenario.parallel = {2, rank};
      auto session = make(scenario);
      ASSERT_NE(session, nullptr);
      const ModelConfig& model = scenario.model;
      const AttendedDims dims = attended_dims(model);
      while (!session->finished()) {
        const auto ok = session->step();
        ASSERT_TRUE(ok) << ok.error().text();
        const StepRecord& record = session->history().back();
        for (const TapResult& r : record.results) {
          ASSERT_NE(r.verdict, Verdict::kWrong) << r.tap << ": " << r.note;
        }
        const ExchangeCounts layer = planned_exchange(scenario.context.ranks, model.heads / 2,
                                                      dims.query, dims.value, record.tokens);
        expect_sent(record, layer, model.num_layers());
      }
    }
  }
}

TEST(ContextRanks, PlantedBugsAreNamedOnATensorParallelRank) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  for (const RankMutant& mutant : rank_mutants()) {
    if (mutant.shows == AS_OP_SPARSE_ATTENTION) continue;  // of entries
    SCOPED_TRACE(mutant.name);
    Scenario scenario = shared("tiny-gptoss", {2, 1});
    scenario.parallel = {2, 1};
    const Blame first = blamed_of(scenario, mutant.name);
    EXPECT_EQ(first.op, mutant.shows) << first.sentence();
    EXPECT_TRUE(first.first.tap.starts_with(std::string(mutant.tap) + kRankTap))
        << first.sentence();
  }
}

// Rows come back from the whole cache; the bytes of a step are the same as when it first ran.
TEST(ContextRanks, GoingBackBringsTheRowsOfRanks) {
  for (const char* name : {"tiny-llama", "tiny-gemma"}) {
    SCOPED_TRACE(name);
    ASSERT_NO_FATAL_FAILURE(expect_same_after_going_back(*make(shared(name, {4, 1}))));
  }
}

TEST(ContextRanks, AKeptSessionGoesOn) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  ASSERT_NO_FATAL_FAILURE(expect_kept(shared("tiny-gptoss", {2, 2}), "context"));
}

// A request that finds the blocks of another one reads that one's rows on every rank.
TEST(ContextRanks, CommonPrefixesAreSharedOnEveryRank) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  Scenario scenario = shared("tiny-llama", {4, 1});
  ScenarioRequest late = scenario.requests[0];
  late.name = "late";
  late.arrival_step = 3;
  late.tokens.push_back(9);
  scenario.requests.push_back(late);
  auto session = make(scenario);
  while (!session->finished()) {
    ASSERT_TRUE(session->step());
    const auto blamed = blame(session->history().back().results);
    ASSERT_TRUE(blamed.empty()) << blamed.front().sentence();
  }
  EXPECT_GT(session->serving().totals().hit_tokens, 0);
}

TEST(ContextRanks, PlantedBugsAreNamed) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  EXPECT_EQ(rank_mutants().size(), 6u);
  for (const RankMutant& mutant : rank_mutants()) {
    if (mutant.shows == AS_OP_SPARSE_ATTENTION) continue;
    SCOPED_TRACE(mutant.name);
    const Blame first = blamed_of(shared("tiny-gptoss", {2, 1}), mutant.name);
    EXPECT_EQ(first.op, mutant.shows) << first.sentence();
    EXPECT_TRUE(first.first.tap.starts_with(std::string(mutant.tap) + kRankTap))
        << first.sentence();
  }
}

// Where lists say what is read, too; it has no sinks.
TEST(ContextRanks, PlantedBugsAreNamedWhereAnIndexerSelects) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  for (const RankMutant& mutant : rank_mutants()) {
    if (mutant.ranks.part != nullptr) continue;
    SCOPED_TRACE(mutant.name);
    const Blame first = blamed_of(shared("tiny-v3.2", {4, 1}), mutant.name);
    const bool inserts = mutant.shows == AS_OP_ROPE_KV_INSERT;
    EXPECT_EQ(first.op, inserts ? AS_OP_MLA_KV_INSERT : AS_OP_SPARSE_MLA_ATTENTION)
        << first.sentence();
    EXPECT_TRUE(first.first.tap.starts_with(std::string(mutant.tap) + kRankTap))
        << first.sentence();
  }
}

// A bug of a kernel is one on every rank too.
TEST(ContextRanks, ABugOfTheOpItselfIsNamedByIt) {
  if (!have_references()) GTEST_SKIP() << "skipped: no references";
  auto session = make(shared("tiny-llama", {2, 1}), References::kSim,
                      {"cpu", "paged_attention=mutant:kv_group_off_by_one"});
  ASSERT_TRUE(session->step());
  const auto blamed = blame(session->history().back().results);
  ASSERT_EQ(blamed.size(), 1u);
  EXPECT_EQ(blamed[0].op, AS_OP_PAGED_ATTENTION);
  EXPECT_TRUE(blamed[0].first.tap.ends_with(".rank0")) << blamed[0].sentence();
}

// Ranks have their rows on the host: a device computes what it is given there, and around it what
// is its own. Whole steps, single ops, and what a reference says.
TEST(ContextRanks, ADeviceGivesTheSameBytesAsTheHost) {
  host_device::takes_host_tensors = true;
  for (const char* model : {"tiny-llama", "tiny-gptoss", "tiny-v3", "tiny-v3.2"}) {
    SCOPED_TRACE(model);
    const auto open = [&](std::vector<std::string> lanes, References references) {
      SessionOptions options;
      options.references = references;
      options.threads = 2;
      options.rewind_every = 2;
      options.lanes = std::move(lanes);
      options.device = std::make_shared<HostDevice>();
      auto session = Session::create(shared(model, {2, 1}), host_device::lanes(), options);
      EXPECT_TRUE(session) << session.error().text();
      return session ? std::move(*session) : nullptr;
    };
    auto host = open({"cpu"}, References::kNone), whole = open({"cuda"}, References::kNone);
    auto mixed = open({"cuda", "o_proj=cpu"}, References::kNone);
    auto seen = open({"cuda"}, have_references() ? References::kSim : References::kNone);
    std::vector<std::uint64_t> digests;
    while (!host->finished()) {
      digests.push_back(whole->digest());
      for (Session* session : {host.get(), whole.get(), mixed.get(), seen.get()}) {
        const auto ok = session->step();
        ASSERT_TRUE(ok) << ok.error().text();
        ASSERT_EQ(session->digest(), host->digest()) << host->cursor().step;
        ASSERT_EQ(session->history().back().sampled, host->history().back().sampled);
        EXPECT_TRUE(blame(session->history().back().results).empty());
      }
      EXPECT_GT(whole->history().back().exchanged[1].messages, 0);
    }
    EXPECT_FALSE(whole->device_error());
    ASSERT_TRUE(whole->seek({3, -1, 0, false}));
    EXPECT_EQ(whole->digest(), digests[3]);
    ASSERT_TRUE(whole->step());
    EXPECT_EQ(whole->digest(), digests[4]);
  }
  host_device::takes_host_tensors = false;
}

std::string scenario_text(const std::string& context) {
  return R"({"version": 1, "model": {"preset": "tiny-llama"}, "pool_blocks": 64, )" + context +
         R"( "requests": [{"name": "a", "text": "one two three", "max_new_tokens": 2}]})";
}

TEST(ContextRanks, AScenarioSaysHowRowsAreDealtOut) {
  const auto parsed = [](const std::string& context) {
    return parse_scenario(scenario_text(context), "dcp.json");
  };
  const auto good = parsed(R"("context_parallel": {"ranks": 4, "interleave": 2},)");
  ASSERT_TRUE(good) << good.error().text();
  EXPECT_EQ(good->context, (ContextSplit{4, 2}));
  EXPECT_EQ(parsed("")->context, ContextSplit{});
  EXPECT_EQ(parsed(R"("context_parallel": {"ranks": 2},)")->context, (ContextSplit{2, 1}));
  for (const auto& [context, place] :
       {std::pair{R"("context_parallel": {"ranks": 3},)", "context_parallel.ranks"},
        {R"("context_parallel": {"ranks": 9},)", "context_parallel.ranks"},
        {R"("context_parallel": {"ranks": 2, "interleave": 0},)", "context_parallel.interleave"},
        {R"("context_parallel": {"size": 2},)", "context_parallel"}}) {
    const auto bad = parsed(context);
    ASSERT_FALSE(bad) << context;
    EXPECT_NE(bad.error().text().find(place), std::string::npos) << bad.error().text();
  }
}

}  // namespace context_ranks_test
}  // namespace attnscope
