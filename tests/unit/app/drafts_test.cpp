// Steps that verify drafts: whatever of these holds, tokens and rows that are read later are those
// of a run without drafts, and every row of a step sees its own prefix alone.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>

#include "app/wiring/wiring.h"
#include "engine/session/persist/session_file.h"
#include "engine/session/session.h"
#include "kernels/layout/records.h"
#include "tests/unit/app/host_device.h"
#include "tests/unit/app/small_scenario.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace drafts_test {

using Pattern = std::vector<std::int64_t>;

Scenario drafting(std::int64_t drafts, Pattern accept, Scenario scenario) {
  scenario.serving.drafts = {drafts, std::move(accept)};
  return scenario;
}

std::unique_ptr<Session> make(const Scenario& scenario, References references = References::kNone) {
  SessionOptions options;
  options.references = references;
  options.threads = 2;
  options.rewind_every = 3;
  options.invariants = Invariants::kCall;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return std::move(*session);
}

// Every row below what is computed, of every cache, but those that a hit saved one of them.
void expect_same_rows(const Session& a, const Session& b) {
  const AddressSpace& space = a.verifier().space();
  std::int64_t compared = 0, left_out = 0;
  for (std::size_t i = 0; i < a.parts().layout.specs.size(); ++i) {
    const CacheSpec& spec = a.parts().layout.specs[i];
    const CacheSpec& spec_b = b.parts().layout.specs[i];
    const Shadow &shadow_a = a.verifier().shadow(), &shadow_b = b.verifier().shadow();
    const as_cache of_a = shadow_a.cache(spec), of_b = shadow_b.cache(spec_b);
    const auto payload = static_cast<std::size_t>(as_payload_bytes(spec.record, spec.width));
    const auto scales = static_cast<std::size_t>(as_scale_bytes(spec.record));
    const int ratio = row_ratio(spec);
    for (const Request& request : a.serving().requests()) {
      const std::int64_t first = space.base(request.id, ratio);
      for (std::int64_t r = 0; r < request.computed / ratio; ++r) {
        if (shadow_a.written(spec, first + r) < 0 || shadow_b.written(spec_b, first + r) < 0) {
          ++left_out;
          continue;
        }
        ++compared;
        const as_row_address x = as_cache_row(&of_a, first + r), y = as_cache_row(&of_b, first + r);
        ASSERT_EQ(std::memcmp(x.payload, y.payload, payload), 0)
            << request.name << " row " << r << " of " << spec.name;
        if (scales == 0) continue;
        ASSERT_EQ(std::memcmp(x.scales, y.scales, scales), 0) << request.name << " row " << r;
      }
    }
  }
  EXPECT_GT(compared, 100);
  if (a.serving().totals().hits + b.serving().totals().hits == 0) {
    EXPECT_EQ(left_out, 0);
  }
}

void expect_same_outcome(const Session& plain, const Session& drafted) {
  for (std::size_t i = 0; i < plain.serving().requests().size(); ++i) {
    const Request& a = plain.serving().requests()[i];
    const Request& b = drafted.serving().requests()[i];
    EXPECT_EQ(a.tokens, b.tokens) << a.name;
    ASSERT_EQ(a.computed, b.computed) << a.name;
  }
  expect_same_rows(plain, drafted);
}

TEST(Drafts, WhateverHoldsTheOutcomeIsThatWithoutDrafts) {
  const Scenario scenario = small_scenario(120, 22);
  auto plain = make(scenario);
  ASSERT_NO_FATAL_FAILURE(finish(*plain));
  std::vector<std::pair<std::int64_t, Pattern>> cases = {
      {1, {}}, {1, {0}}, {3, {}}, {3, {0}}, {3, {0, 1, 2, 3}}, {5, {5, 0, 4}}};
  std::mt19937 random(17);
  for (int i = 0; i < 4; ++i) {
    const std::int64_t drafts = 1 + static_cast<std::int64_t>(random() % 7);
    Pattern accept;
    for (int n = 0; n < 5; ++n) {
      accept.push_back(static_cast<std::int64_t>(random()) % (drafts + 1));
    }
    cases.emplace_back(drafts, accept);
  }
  for (const auto& [drafts, accept] : cases) {
    auto session = make(drafting(drafts, accept, scenario));
    ASSERT_NO_FATAL_FAILURE(finish(*session));
    ASSERT_NO_FATAL_FAILURE(expect_same_outcome(*plain, *session)) << drafts;
    EXPECT_EQ(session->serving().num_free(), session->serving().num_blocks() - 1);
    const ServingTotals totals = session->serving().totals();
    EXPECT_GT(totals.drafted, 0);
    if (accept.empty()) {
      EXPECT_EQ(totals.accepted, totals.drafted);
      EXPECT_LT(session->history().size(), plain->history().size());
    }
    if (accept == Pattern{0}) {
      EXPECT_EQ(totals.accepted, 0);
    }
  }
}

TEST(Drafts, AsManyHoldAsWasAskedFor) {
  const Pattern accept = {2, 0, 3, 1};
  auto session = make(drafting(3, accept, small_scenario(120, 22)));
  ASSERT_NO_FATAL_FAILURE(finish(*session));
  std::vector<std::size_t> turn(3, 0);
  for (const StepRecord& step : session->history()) {
    for (std::size_t r = 0; r < step.live.size(); ++r) {
      if (step.drafted[r] == 0) continue;
      const auto want = accept[turn[static_cast<std::size_t>(step.live[r])]++ % accept.size()];
      EXPECT_EQ(step.accepted[r], std::min<std::int64_t>(want, step.drafted[r])) << step.step;
    }
  }
  EXPECT_GT(turn[0], accept.size());
}

TEST(Drafts, EveryRowOfAStepSeesItsOwnPrefix) {
  auto session = make(drafting(4, {1, 4}, small_scenario(124, 16)));
  std::int64_t emitted_twice = 0;
  while (!session->finished()) {
    const auto ok = session->step();
    ASSERT_TRUE(ok) << ok.error().text();
    const StepMetadata& m = session->metadata();
    std::map<std::int32_t, int> entries;
    for (std::size_t t = 0; t < m.positions.size(); ++t) {
      const std::int64_t seen = m.positions[t] + 1;
      EXPECT_EQ(m.tensor("swa_lens")->numbers[t],
                std::min<std::int64_t>(seen, session->parts().config.window));
      EXPECT_EQ(m.tensor("c4_lens")->numbers[t], seen / 4);
      EXPECT_EQ(m.tensor("c128_lens")->numbers[t], seen / 128);
      if (session->history().back().decode_only) {
        entries[m.token_to_req[t]] += m.tensor("c4_slots")->slots[t] >= 0 ? 1 : 0;
      }
    }
    for (const auto& [row, count] : entries) emitted_twice += count == 2 ? 1 : 0;
  }
  EXPECT_GT(emitted_twice, 0);  // the second entry pools rows of the same step
}

TEST(Drafts, EveryTapIsRightBesideTheReferences) {
  if (all_lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  auto session = make(drafting(3, {3, 0, 2, 1}, small_scenario(120, 14)), References::kBoth);
  ASSERT_NO_FATAL_FAILURE(finish(*session));
  std::int64_t taps = 0;
  for (const StepRecord& step : session->history()) {
    for (const TapResult& r : step.results) {
      ++taps;
      EXPECT_NE(r.verdict, Verdict::kWrong)
          << r.step << " " << as_op_find(r.op)->name << "." << r.tap << ": " << r.note;
    }
  }
  EXPECT_GT(taps, 500);
}

// A verification that falls short of its drafts, requests that lose their blocks, prompts that find
// rows of others.
TEST(Drafts, BudgetsPreemptionsAndHitsChangeNothing) {
  Scenario tight = small_scenario(60, 30);
  tight.limits = {9, 8};
  Scenario crowded = small_scenario(40, 40);
  crowded.model = narrow_model({1, 2});
  crowded.pool_blocks = 36;
  crowded.limits = {64, 4};
  crowded.requests.resize(1);
  for (int i = 1; i < 4; ++i) {
    crowded.requests.push_back(crowded.requests[0]);
    crowded.requests.back().name = "r" + std::to_string(i);
    crowded.requests.back().tokens[0] += i;
  }
  Scenario sharing = small_scenario(300, 12);
  sharing.requests.push_back(sharing.requests[0]);
  sharing.requests.back().name = "again";
  sharing.requests.back().arrival_step = 14;
  std::int64_t cut = 0, preemptions = 0, hits = 0;
  for (const Scenario& scenario : {tight, crowded, sharing}) {
    auto plain = make(scenario);
    ASSERT_NO_FATAL_FAILURE(finish(*plain));
    for (const Pattern& accept : {Pattern{}, Pattern{0, 2, 5, 1}}) {
      auto session = make(drafting(5, accept, scenario));
      ASSERT_NO_FATAL_FAILURE(finish(*session));
      ASSERT_NO_FATAL_FAILURE(expect_same_outcome(*plain, *session));
      preemptions += session->serving().totals().preemptions;
      hits += session->serving().totals().hits;
      for (const StepRecord& step : session->history()) {
        const auto drafted = std::accumulate(step.drafted.begin(), step.drafted.end(), 0);
        cut += step.tokens == scenario.limits.token_budget && drafted % 5 != 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(cut, 0);
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(hits, 0);
}

TEST(Drafts, GoingBackAndKeptSessionsGoOnTheSameWay) {
  const Scenario scenario = drafting(3, {1, 3, 0}, small_scenario(50, 24));
  auto session = make(scenario);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("attnscope-drafts-" + std::to_string(getpid())))
          .string();
  std::vector<std::uint64_t> digests;
  while (!session->finished()) {
    digests.push_back(session->digest());
    if (digests.size() == 9) {
      ASSERT_TRUE(save_session(*session, path, "key"));
    }
    ASSERT_TRUE(session->step());
  }
  digests.push_back(session->digest());
  ASSERT_GT(digests.size(), 9u);
  for (const std::size_t to : {std::size_t{7}, std::size_t{2}, digests.size() - 1}) {
    ASSERT_TRUE(session->seek({static_cast<std::int64_t>(to), -1, 0, false}));
    EXPECT_EQ(session->digest(), digests[to]) << to;
  }
  auto kept = make(scenario);
  const auto loaded = load_session(*kept, path, "key");
  std::filesystem::remove(path);
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_EQ(kept->digest(), digests[8]);
  ASSERT_NO_FATAL_FAILURE(finish(*kept));
  EXPECT_EQ(kept->digest(), digests.back());
}

TEST(Drafts, ADeviceVerifiesThemByPlan) {
  const Scenario scenario = drafting(3, {0, 3, 1}, small_scenario(60, 20));
  const auto on = [&](const char* lane, std::shared_ptr<HostDevice> device) {
    SessionOptions options;
    options.references = References::kNone;
    options.lanes = {lane};
    options.threads = 2;
    options.device = std::move(device);
    auto session = Session::create(scenario, host_device::lanes(), options);
    EXPECT_TRUE(session) << session.error().text();
    return std::move(*session);
  };
  auto device = std::make_shared<HostDevice>();
  auto cpu = on("cpu", nullptr), gpu = on("cuda", device);
  const auto replays = device->counts.replays;
  while (!cpu->finished()) {
    ASSERT_TRUE(cpu->step());
    ASSERT_TRUE(gpu->step());
    ASSERT_EQ(cpu->history().back().sampled, gpu->history().back().sampled);
    ASSERT_EQ(cpu->history().back().accepted, gpu->history().back().accepted);
    ASSERT_EQ(cpu->digest(), gpu->digest()) << cpu->cursor().step;
  }
  EXPECT_GT(cpu->serving().totals().accepted, 0);
  EXPECT_GT(device->counts.replays, replays);
}

}  // namespace drafts_test
}  // namespace attnscope
