// What a session decides is judged, and what must hold of it: equal decisions are counted, through
// steps back and kept files; what is decided otherwise, or does not hold, is a wrong tap with a
// name.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "app/wiring/wiring.h"
#include "engine/session/persist/session_file.h"
#include "engine/session/session.h"
#include "engine/session/trace_recorder.h"
#include "engine/trace/judged_taps.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace judged_session_test {

std::unique_ptr<Session> make(const Scenario& scenario, Invariants invariants = Invariants::kStep) {
  SessionOptions options;
  options.references = References::kNone;
  options.threads = 2;
  options.rewind_every = 3;
  options.invariants = invariants;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return std::move(*session);
}

Scenario scenario(std::int64_t pool_blocks, SchedulerLimits limits) {
  Scenario s;
  s.name = "judged";
  s.model = narrow_model({1, 2});
  s.seed = 11;
  s.pool_blocks = pool_blocks;
  s.limits = limits;
  return s;
}

ScenarioRequest& add(Scenario& s, std::int64_t length, std::int64_t arrival, std::int64_t outputs) {
  ScenarioRequest& r = s.requests.emplace_back();
  r.name = "r" + std::to_string(s.requests.size());
  for (std::int64_t i = 0; i < length; ++i) {
    r.tokens.push_back(static_cast<std::int32_t>((i * 29 + i / 7) % 251));
  }
  r.max_new_tokens = outputs;
  r.arrival_step = arrival;
  return r;
}

// Prefixes that are shared, one that is taken away, one that comes when all others are over;
// drafts.
Scenario sharing(CacheProfile profile) {
  Scenario s = scenario(260, {128, 3});
  s.serving.kv.switches = switches_of(profile);
  add(s, 300, 0, 5);
  add(s, 290, 4, 5);
  add(s, 280, 4, 5).tokens[270] = 3;
  ScenarioRequest& gone = add(s, 60, 5, 5);
  gone.tokens[0] = 9;
  gone.abort_step = 6;
  add(s, 20, 90, 3).tokens[0] = 8;
  s.serving.drafts.tokens = 2;
  s.serving.drafts.accept = {1, 2, 0};
  return s;
}

// Requests that grow out of the pool.
Scenario crowded(SchedulePolicy policy) {
  Scenario s = scenario(36, {64, 4});
  s.serving.policy = policy;
  for (std::int32_t i = 0; i < 4; ++i) {
    ScenarioRequest& r = add(s, 40, 0, 40);
    r.tokens[0] = i;
    r.priority = i % 2;
  }
  return s;
}

std::int64_t total(const DecisionCounts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

const TapResult* judged_tap(const std::vector<TapResult>& results) {
  const auto found = std::ranges::find_if(results, is_judged);
  return found == results.end() ? nullptr : &*found;
}

Serving& serving_of(Session& session) { return const_cast<Serving&>(session.serving()); }

TEST(JudgedSession, EqualDecisionsAreCountedInEveryStep) {
  std::int64_t victims = 0, hits = 0;
  for (const Scenario& s : {sharing(CacheProfile::kM), sharing(CacheProfile::kA),
                            crowded(SchedulePolicy::kFcfs), crowded(SchedulePolicy::kPriority)}) {
    auto session = make(s);
    while (!session->finished()) ASSERT_TRUE(session->step());
    ASSERT_FALSE(session->judge().wrong()) << session->judge().wrong()->note;
    std::int64_t of_steps = 0;
    for (const StepRecord& step : session->history()) {
      EXPECT_GT(step.decisions, 0) << step.step;
      EXPECT_EQ(judged_tap(step.results), nullptr);
      of_steps += step.decisions;
    }
    const DecisionCounts& counts = session->judge().counts();
    EXPECT_EQ(total(counts), of_steps);
    victims += counts[static_cast<std::size_t>(Decision::kVictim)];
    hits += counts[static_cast<std::size_t>(Decision::kHit)];
  }
  EXPECT_GT(victims, 0);
  EXPECT_GT(hits, 4);
}

TEST(JudgedSession, GoingBackAndAKeptFileJudgeTheSameDecisions) {
  const Scenario s = sharing(CacheProfile::kA);
  auto session = make(s);
  while (!session->finished()) ASSERT_TRUE(session->step());
  const DecisionCounts all = session->judge().counts();
  const auto steps = static_cast<std::int64_t>(session->history().size());
  for (const std::int64_t back : {steps - 1, steps / 2, std::int64_t{0}}) {
    ASSERT_TRUE(session->seek({back, -1, 0, false}));
    EXPECT_LT(total(session->judge().counts()), total(all));
    while (!session->finished()) ASSERT_TRUE(session->step());
    EXPECT_EQ(session->judge().counts(), all);
    EXPECT_FALSE(session->judge().wrong());
  }
  ASSERT_TRUE(session->seek({steps / 2, -1, 0, false}));
  const std::string file =
      (std::filesystem::temp_directory_path() / ("attnscope_judged" + std::to_string(getpid())))
          .string();
  ASSERT_TRUE(save_session(*session, file, "key"));
  auto loaded = make(s);
  const auto ok = load_session(*loaded, file, "key");
  std::filesystem::remove(file);
  ASSERT_TRUE(ok) << ok.error().text();
  EXPECT_EQ(loaded->judge().counts(), session->judge().counts());
  while (!loaded->finished()) ASSERT_TRUE(loaded->step());
  EXPECT_EQ(loaded->judge().counts(), all);
  EXPECT_FALSE(loaded->judge().wrong());
}

TEST(JudgedSession, AnotherBlockIsAWrongTapWithTheRequestAndTheStep) {
  auto session = make(sharing(CacheProfile::kM), Invariants::kOff);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(session->step());
  // The block whose turn it is goes to the end of the queue.
  BlockPool& pool = serving_of(*session).scheduler().kv().pool();
  std::vector<std::int32_t> front;
  ASSERT_TRUE(pool.get(1, front));
  pool.release(front);
  ASSERT_TRUE(session->step());
  const TapResult* wrong = judged_tap(session->history().back().results);
  ASSERT_NE(wrong, nullptr);
  EXPECT_EQ(wrong->tap, "eviction.decision");
  EXPECT_EQ(wrong->verdict, Verdict::kWrong);
  EXPECT_EQ(wrong->step, 2);
  EXPECT_TRUE(wrong->note.starts_with("request 0: entry ")) << wrong->note;
  const auto must = "must be block " + std::to_string(front[0]);
  EXPECT_NE(wrong->note.find(must), std::string::npos) << wrong->note;

  std::vector<TapResult> all;
  for (const StepRecord& step : session->history()) {
    all.insert(all.end(), step.results.begin(), step.results.end());
  }
  const Summary summary = summarise(all, 1);
  EXPECT_EQ(summary.verdict(), "wrong");
  EXPECT_EQ(summary.count(Verdict::kWrong), 1);
  ASSERT_EQ(summary.blamed.size(), 1u);
  EXPECT_NE(summary.blamed[0].sentence().find("step 2, the scheduler, tap eviction.decision"),
            std::string::npos)
      << summary.blamed[0].sentence();
  // Later steps are computed and not judged; the recorder has seen the tap and the counts.
  const std::int64_t judged = total(session->judge().counts());
  ASSERT_TRUE(session->step());
  EXPECT_EQ(total(session->judge().counts()), judged);
  EXPECT_NE(judged_tap(recorder.summary(2)->results), nullptr);
  EXPECT_GT(recorder.summary(1)->decisions, 0);
  EXPECT_EQ(recorder.summary(3)->decisions, 0);
  // Before it nothing is wrong: going back judges anew.
  ASSERT_TRUE(session->seek({1, -1, 0, false}));
  EXPECT_FALSE(session->judge().wrong());
}

TEST(JudgedSession, WhatIsDecidedAtAStepsEndIsItsTap) {
  auto session = make(sharing(CacheProfile::kM), Invariants::kOff);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  ASSERT_TRUE(session->step());
  // The request may sample more than the model of it was told.
  SchedRequest* first = serving_of(*session).scheduler().find(0);
  ASSERT_NE(first, nullptr);
  first->stop.max_tokens += 5;
  while (!session->judge().wrong() && !session->finished()) ASSERT_TRUE(session->step());
  const TapResult* wrong = judged_tap(session->history().back().results);
  ASSERT_NE(wrong, nullptr);
  EXPECT_EQ(wrong->tap, "stop.decision");
  EXPECT_EQ(wrong->note, "request 0: goes on with 5 sampled tokens, must be over");
  const auto summary = recorder.summary(wrong->step);
  EXPECT_NE(judged_tap(summary->results), nullptr);
  EXPECT_EQ(summary->layers[0].worst, Verdict::kWrong);
  // The token that it has beyond its last one has no row to be computed in.
  Result<void> next;
  for (int i = 0; i < 3 && next; ++i) next = session->step();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, AS_MISMATCH);
  EXPECT_NE(next.error().message.find("request 0 is to compute tokens"), std::string::npos)
      << next.error().message;
  EXPECT_FALSE(session->op());  // it stays there
}

TEST(JudgedSession, ABrokenInvariantIsAWrongTapAndNamesTheCall) {
  for (const Invariants level : {Invariants::kStep, Invariants::kCall}) {
    auto session = make(sharing(CacheProfile::kM), level);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(session->step());
    // Somebody gives a running request's newest block away.
    const std::vector<std::int32_t> last = {session->serving().table(0, 0).back()};
    serving_of(*session).scheduler().kv().pool().release(last);
    const auto stopped = session->step();
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code, AS_MISMATCH);
    const auto& results = session->current_results();
    const auto found = std::ranges::find_if(
        results, [](const TapResult& r) { return r.tap.ends_with(kInvariantTap); });
    ASSERT_NE(found, results.end());
    EXPECT_EQ(found->verdict, Verdict::kWrong);
    EXPECT_EQ(found->step, 3);
    ASSERT_TRUE(session->guard().violation());
    EXPECT_NE(found->note.find(", met by " + session->guard().violation()->met), std::string::npos)
        << found->note;
    EXPECT_TRUE(level == Invariants::kStep
                    ? session->guard().violation()->met == "schedule"
                    : session->guard().violation()->met.find(" of request ") != std::string::npos)
        << session->guard().violation()->met;
    EXPECT_EQ(summarise(results, 1).verdict(), "wrong");
  }
}

}  // namespace judged_session_test
}  // namespace attnscope
