// A session on shared, recycled and lost blocks: going back, keeping, what readers may read, and
// invariants that stop it.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "app/reports/report.h"
#include "app/wiring/wiring.h"
#include "engine/family/deepseek_v4/caches.h"
#include "engine/session/persist/session_file.h"
#include "engine/session/place.h"
#include "engine/session/session.h"
#include "engine/session/trace_recorder.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace session_serving_test {

std::unique_ptr<Session> make(const Scenario& scenario, References references = References::kNone,
                              std::int64_t rewind_every = 3) {
  SessionOptions options;
  options.references = references;
  options.threads = 2;
  options.rewind_every = rewind_every;
  options.invariants = Invariants::kCall;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return std::move(*session);
}

// The CPU lane; the first request of a step gets no token, as of NaN logits.
std::int32_t samples_nothing(const void* params, const as_call* call, as_error* error) {
  static const LaneRegistry lanes = all_lanes();
  const std::int32_t status = lanes.find("cpu")->ops[AS_OP_SAMPLE](params, call, error);
  const as_tensor& tokens = static_cast<const as_sample_params*>(params)->tokens;
  if (tokens.shape[0] > 0) *at<std::int32_t>(tokens, 0) = -1;
  return status;
}

// Two prompts that begin alike (the second comes later), one that comes together with the second,
// one that is taken away; two layers for speed.
Scenario sharing() {
  Scenario s;
  s.name = "sharing";
  s.model = narrow_model({1, 2});
  s.seed = 11;
  s.pool_blocks = 260;
  s.limits = {128, 3};
  const auto add = [&](const char* name, std::int64_t length, std::int64_t arrival) {
    ScenarioRequest& r = s.requests.emplace_back();
    r.name = name;
    for (std::int64_t i = 0; i < length; ++i) {
      r.tokens.push_back(static_cast<std::int32_t>((i * 29 + i / 7) % 251));
    }
    r.max_new_tokens = 5;
    r.arrival_step = arrival;
  };
  add("donor", 300, 0);
  add("reader", 290, 4);
  add("twin", 280, 4);
  s.requests[2].tokens[270] = 3;
  add("gone", 60, 5);
  s.requests[3].tokens[0] = 9;
  s.requests[3].abort_step = 6;
  return s;
}

// Requests that grow out of the pool. The first token tells them apart.
Scenario crowded() {
  Scenario s = sharing();
  s.pool_blocks = 36;
  s.limits = {64, 4};
  s.requests.clear();
  for (int i = 0; i < 4; ++i) {
    ScenarioRequest& r = s.requests.emplace_back();
    r.name = "r" + std::to_string(i);
    for (std::int32_t t = 0; t < 40; ++t) r.tokens.push_back((t * 31 + i) % 251);
    r.max_new_tokens = 40;
  }
  return s;
}

// The later of two loses its blocks just after its prompt and finds the first 256 tokens of them
// again: the other needs few and none of those.
Scenario losing_and_finding() {
  Scenario s = sharing();
  s.pool_blocks = 128;
  s.limits = {512, 2};
  s.requests.clear();
  for (int i = 0; i < 2; ++i) {
    ScenarioRequest& r = s.requests.emplace_back();
    r.name = i == 0 ? "keeps" : "loses";
    for (std::int32_t t = 0; t < (i == 0 ? 40 : 275); ++t) r.tokens.push_back((t * 31 + i) % 251);
    r.max_new_tokens = i == 0 ? 20 : 24;
  }
  return s;
}

void expect_nothing_wrong(const Session& session) {
  for (const StepRecord& step : session.history()) {
    for (const TapResult& r : step.results) {
      EXPECT_NE(r.verdict, Verdict::kWrong)
          << r.step << " " << as_op_find(r.op)->name << "." << r.tap << ": " << r.note;
    }
  }
}

TEST(SessionServing, AHitComputesOnlyWhatFollowsItAndOpsTablesKeepWhatWasDropped) {
  auto session = make(sharing(), References::kSim);
  bool seen = false;
  std::int64_t dead = 0;
  while (!session->finished()) {
    ASSERT_TRUE(session->step());
    for (const SharedBlock& b : session->serving().step().shared) {
      EXPECT_EQ(session->serving().content(b.block).writer, b.donor);
      seen = seen || b.request == 1;
      EXPECT_NE(b.request, 0);
    }
    const StepMetadata& m = session->metadata();
    for (std::size_t i = 0; i < m.tables.size(); ++i) {
      dead += m.blocks[i] == AS_NULL_BLOCK && m.tables[i] != AS_NULL_BLOCK;
    }
  }
  EXPECT_TRUE(seen);
  EXPECT_GT(dead, 20);
  EXPECT_EQ(session->serving().requests()[1].hit_tokens, 256);
  EXPECT_EQ(session->serving().requests()[2].hit_tokens, 256);
  EXPECT_EQ(session->serving().requests()[3].state, RequestState::kAborted);
  EXPECT_EQ(session->serving().num_free(), session->serving().num_blocks() - 1);
  expect_nothing_wrong(*session);  // rows behind dead entries are other requests' by now
}

// What a reader samples does not depend on whether its prompt was found or computed.
TEST(SessionServing, HitsDoNotChangeWhatIsSampled) {
  Scenario cached = sharing(), computed = sharing();
  computed.serving.kv.caching = false;
  auto a = make(cached), b = make(computed);
  digests(*a);
  digests(*b);
  EXPECT_EQ(a->serving().totals().hits, 2);
  EXPECT_EQ(b->serving().totals().hits, 0);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(a->serving().requests()[i].tokens, b->serving().requests()[i].tokens) << i;
  }
}

// What the loader refuses is refused too where layers were chosen afterwards: one request alone
// would not fit, and the session would not end.
TEST(SessionServing, AChangedScenarioIsHeldAgainstThePool) {
  auto scenario = load_scenario("pressure");
  ASSERT_TRUE(scenario) << scenario.error().text();
  scenario->model.layers = {0, 1, 2};
  const auto session = Session::create(*scenario, all_lanes(), {});
  ASSERT_FALSE(session);
  EXPECT_NE(
      session.error().text().find("request \"a\" (490 tokens of prompt and 40 new) may need "),
      std::string::npos)
      << session.error().text();
  EXPECT_NE(session.error().text().find("raise pool_blocks to at least "), std::string::npos);
}

TEST(SessionServing, APreemptedRequestFindsItsOwnBlocks) {
  auto session = make(losing_and_finding(), References::kSim);
  std::size_t shared = 0;
  while (!session->finished()) {
    ASSERT_TRUE(session->step());
    for (const SharedBlock& b : session->serving().step().shared) {
      EXPECT_EQ(b.request, 1);
      EXPECT_EQ(b.donor, 1);
      EXPECT_EQ(session->serving().content(b.block).writer, 1);
      ++shared;
    }
  }
  const Request& loses = session->serving().requests()[1];
  EXPECT_EQ(loses.preemptions, 1);
  EXPECT_EQ(loses.hit_tokens, 256);
  EXPECT_GT(shared, 0u);
  EXPECT_EQ(loses.recomputed, session->serving().totals().recomputed);
  EXPECT_GT(loses.recomputed, 0);
  EXPECT_LT(loses.recomputed, 275 - 256 + loses.max_new_tokens);
  expect_nothing_wrong(*session);

  // What it samples does not depend on it.
  Scenario roomy = losing_and_finding();
  roomy.pool_blocks = 400;
  auto undisturbed = make(roomy);
  digests(*undisturbed);
  EXPECT_EQ(undisturbed->serving().totals().preemptions, 0);
  EXPECT_EQ(loses.tokens, undisturbed->serving().requests()[1].tokens);
}

// With references from the middle on; from the beginning on the bytes alone.
TEST(SessionServing, GoingBackThroughHitsAndPreemptionsGivesTheSameBytes) {
  std::int64_t preemptions = 0;
  for (const Scenario& scenario : {sharing(), crowded(), losing_and_finding()}) {
    for (const References references : {References::kSim, References::kNone}) {
      auto session = make(scenario, references);
      const std::vector<std::uint64_t> first = digests(*session);
      expect_nothing_wrong(*session);
      preemptions += session->serving().totals().preemptions;
      const auto steps = static_cast<std::int64_t>(first.size());
      const std::int64_t step = references == References::kNone ? 1 : steps / 2;
      ASSERT_TRUE(session->seek({step, -1, 0, false}));
      const std::vector<std::uint64_t> again = digests(*session);
      ASSERT_EQ(again.size(), first.size() - static_cast<std::size_t>(step));
      EXPECT_TRUE(std::equal(again.begin(), again.end(), first.begin() + step)) << step;
      expect_nothing_wrong(*session);
    }
  }
  EXPECT_GT(preemptions, 0);
}

TEST(SessionServing, AKeptSessionGoesOnWithItsSharedAndKeyedBlocks) {
  const std::string file =
      (std::filesystem::temp_directory_path() / "attnscope_serving_test.keep").string();
  for (const Scenario& scenario : {sharing(), crowded()}) {
    const std::vector<std::uint64_t> all = digests(*make(scenario));
    auto first = make(scenario, References::kSim);
    for (const std::size_t at : {all.size() / 2, all.size() - 1}) {
      run_steps(*first, static_cast<int>(at - first->history().size()));
      ASSERT_TRUE(save_session(*first, file, "key"));
      auto second = make(scenario, References::kSim);
      const auto ok = load_session(*second, file, "key");
      ASSERT_TRUE(ok) << ok.error().text();
      EXPECT_EQ(second->digest(), first->digest());
      EXPECT_EQ(second->serving().free_list(), first->serving().free_list());
      EXPECT_EQ(second->serving().owners(), first->serving().owners());
      const std::vector<std::uint64_t> rest = digests(*second);
      EXPECT_TRUE(std::equal(rest.begin(), rest.end(),
                             all.begin() + static_cast<std::ptrdiff_t>(at), all.end()));
      expect_nothing_wrong(*second);
      // Back over a checkpoint from before it was kept.
      ASSERT_TRUE(second->seek({static_cast<std::int64_t>(at) - 1, -1, 0, false}));
      const std::vector<std::uint64_t> again = digests(*second);
      EXPECT_TRUE(std::equal(again.begin(), again.end(),
                             all.begin() + static_cast<std::ptrdiff_t>(at) - 1, all.end()));
      expect_nothing_wrong(*second);
    }
  }
  std::remove(file.c_str());
}

// A changed byte in a shared row is the cache's fault, whoever reads it.
TEST(SessionServing, AChangedSharedRowBlamesTheCache) {
  auto session = make(sharing(), References::kSim);
  bool joined = false;
  while (!joined) {
    ASSERT_TRUE(session->step());
    const auto& requests = session->serving().requests();
    joined = requests[1].state == RequestState::kRunning && requests[1].computed >= 290;
  }
  const CacheSpec& spec = *session->parts().layout.find(0, kMainCache);
  const as_cache cache = session->slab().cache(spec);
  const std::int32_t block = session->serving().table(1, spec.group)[0];
  EXPECT_EQ(session->serving().content(block).writer, 0);
  as_cache_row(&cache, std::int64_t{block} * spec.rows_per_block + 7).payload[5] ^= 0x40;
  ASSERT_TRUE(session->step());
  const auto& results = session->history().back().results;
  EXPECT_TRUE(std::ranges::any_of(results, [](const TapResult& r) {
    return r.verdict == Verdict::kWrong && r.tap == "extra_cache.read" &&
           r.note.find("holds other bytes than request 0") != std::string::npos;
  }));
}

TEST(SessionServing, ABrokenInvariantStopsTheSessionWhereItBroke) {
  for (const Invariants level : {Invariants::kStep, Invariants::kCall}) {
    auto session = make(sharing());
    session->set_invariants(level);
    run_steps(*session, 3);
    // Somebody gives a running request's newest block away.
    auto& serving = const_cast<Serving&>(session->serving());
    const std::vector<std::int32_t> last = {session->serving().table(0, 0).back()};
    serving.scheduler().kv().pool().release(last);
    const auto stopped = session->step();
    ASSERT_FALSE(stopped);
    EXPECT_NE(stopped.error().message.find("step 3: invariant I"), std::string::npos)
        << stopped.error().message;
    EXPECT_EQ(session->cursor(), (Cursor{3, -1, 0, false}));
    EXPECT_EQ(session->next_op(), AS_OP_SCHEDULE);
    EXPECT_FALSE(session->op());  // it stays there
    ASSERT_TRUE(session->seek({0, -1, 0, false}));
    EXPECT_TRUE(session->step());
  }
  auto off = make(sharing());
  off->set_invariants(Invariants::kOff);
  ASSERT_TRUE(off->step());
  EXPECT_EQ(off->guard().steps(), 0);
}

TEST(SessionServing, EventsTellOfHitsSharesPreemptionsAndAborts) {
  std::map<EventKind, int> kinds;
  for (const Scenario& scenario : {sharing(), crowded()}) {
    auto session = make(scenario);
    TraceRecorder recorder;
    session->set_observer(&recorder);
    std::int64_t hits = 0, preemptions = 0;
    digests(*session);
    for (const auto& summary : recorder.summaries()) {
      for (const Event& e : summary->events) ++kinds[e.kind];
      hits += summary->hit_tokens;
      preemptions += summary->preemptions;
      const PoolUsage& u = summary->usage;
      EXPECT_EQ(u.held + u.free_keyed + u.free_empty + u.null, scenario.pool_blocks);
    }
    EXPECT_EQ(hits, session->serving().totals().hit_tokens);
    EXPECT_EQ(preemptions, session->serving().totals().preemptions);
    for (const auto& trace : recorder.traces()) {
      for (const BlockKey& key : trace->keys) {
        EXPECT_GT(key.tokens, 0);
        EXPECT_TRUE(trace->owners[static_cast<std::size_t>(key.block)].keyed);
      }
    }
  }
  for (const EventKind kind : {EventKind::kAdmit, EventKind::kHit, EventKind::kShare,
                               EventKind::kPreempt, EventKind::kAbort, EventKind::kFinish}) {
    EXPECT_GT(kinds[kind], 0) << event_kind_name(kind);
  }
}

TEST(SessionServing, LateRequestsComeEarlierWhereNothingElseIsLeft) {
  Scenario s = sharing();
  s.requests.resize(2);
  s.requests[1].arrival_step = 1000;
  auto session = make(s);
  digests(*session);
  EXPECT_LT(session->history().size(), 40u);
  EXPECT_EQ(session->serving().requests()[1].state, RequestState::kFinished);
  EXPECT_EQ(session->serving().requests()[1].hit_tokens, 256);
}

TEST(SessionServing, RequestsWithoutATokenAreTold) {
  LaneRegistry lanes = all_lanes();
  Lane nothing = *lanes.find("cpu");
  nothing.name = "nothing";
  nothing.ops[AS_OP_SAMPLE] = samples_nothing;
  lanes.add(nothing);
  RunOptions options;
  options.session.references = References::kNone;
  options.session.lanes = {"nothing"};
  options.steps = 40;
  Scenario scenario = sharing();
  scenario.requests[0].abort_step = 30;  // long after it has ended
  const auto run = run_scenario(scenario, lanes, options, nullptr);
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(run->serving.aborted, 4);
  EXPECT_EQ(run->serving.tokenless, 3) << "one is taken away by the scenario";
  const std::string text = format_report(make_report(scenario, options, *run, ""), false);
  EXPECT_NE(text.find("3 requests ended before their end: all logits were NaN"), std::string::npos)
      << text;
}

}  // namespace session_serving_test
}  // namespace attnscope
