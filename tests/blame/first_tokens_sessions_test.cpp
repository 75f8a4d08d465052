// Sessions whose first tokens keep 16 bits beside rows of codes: nothing is wrong in sound ones, by
// any reference, on ranks, gone back; planted bugs are named; what is shown is what was read.
#include <cmath>

#include "engine/family/dense/dense.h"
#include "engine/session/what_if/value_history.h"
#include "engine/trace/tap_result.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/blame/dense_session.h"
#include "tests/blame/trial.h"
#include "tests/unit/app/host_device.h"

namespace attnscope {
namespace first_tokens_sessions_test {

struct FirstCase {
  const char *model, *format;
  int tokens;
};
// A border in the first chunk of a prompt, behind it, and behind all tokens.
constexpr FirstCase kCases[] = {
    {"tiny-llama", "fp8_tensor", 32},       {"tiny-llama", "fp8_token_head", 64},
    {"tiny-llama", "int8_token_head", 200}, {"tiny-gemma", "int8_token_head", 16},
    {"tiny-kvshare", "fp8_token_head", 8},  {"tiny-mqa", "e5m2_head", 24},
    {"tiny-gptoss", "fp8_tensor", 16},      {"tiny-alibi", "int8_token_head", 40}};

Scenario scenario_of(const FirstCase& c, std::uint64_t seed = 7) {
  ModelConfig config = *preset(c.model);
  EXPECT_TRUE(set_cache_dtype(config, c.format)) << c.model;
  EXPECT_TRUE(set_first_tokens(config, c.tokens)) << c.model;
  return dense_scenario(config, seed);
}

std::unique_ptr<Session> open_first(const Scenario& scenario, References references) {
  SessionOptions options;
  options.references = references;
  options.witness = true;
  options.threads = 2;
  options.rewind_every = 2;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

void expect_sound(Session& session) {
  std::vector<TapResult> all;
  while (!session.finished()) {
    const auto ok = session.step();
    ASSERT_TRUE(ok) << ok.error().text();
    const auto& results = session.history().back().results;
    all.insert(all.end(), results.begin(), results.end());
  }
  const auto blamed = blame(all);
  EXPECT_TRUE(blamed.empty()) << sentences(blamed);
  EXPECT_EQ(summarise(all, session.parts().tolerances.drift_limit()).verdict(), "ok");
  EXPECT_EQ(session.witnessed().left_out, "");
  EXPECT_GT(session.witnessed().rows, 0);
}

TEST(FirstTokensSessions, NothingIsWrongByAnyReference) {
  for (const FirstCase& c : kCases) {
    for (const std::uint64_t seed : {1, 2}) {
      SCOPED_TRACE(std::string(c.model) + " " + c.format + ", seed " + std::to_string(seed));
      auto session = open_first(scenario_of(c, seed), References::kBoth);
      ASSERT_NE(session, nullptr);
      expect_sound(*session);
    }
  }
}

// Heads are dealt out, and rows of both kinds with them.
TEST(FirstTokensSessions, NorOnRanks) {
  for (const int rank : {0, 1}) {
    Scenario scenario = scenario_of(kCases[1]);
    scenario.parallel = {2, rank};
    auto session = open_first(scenario, References::kBoth);
    ASSERT_NE(session, nullptr);
    expect_sound(*session);
  }
}

// Rows of both groups and their tables go back.
TEST(FirstTokensSessions, GoneBackTheyAreTheSame) {
  auto session = open_first(scenario_of(kCases[0]), References::kSim);
  ASSERT_NE(session, nullptr);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(session->step());
  const auto before = session->history().back().results;
  ASSERT_TRUE(session->step_back());
  ASSERT_TRUE(session->step_back());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(session->step());
  const auto& after = session->history().back().results;
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].tap, after[i].tap);
    EXPECT_EQ(before[i].verdict, after[i].verdict);
    EXPECT_EQ(before[i].budget_used, after[i].budget_used);
  }
}

TEST(FirstTokensSessions, BugsOfDenseOpsAreNamed) {
  Trial trial(session_of(scenario_of(kCases[0])));
  int shown = 0;
  for (const Lane& lane : mutants::lanes()) {
    for (const as_op_id op : {AS_OP_ROPE_KV_INSERT, AS_OP_PAGED_ATTENTION}) {
      if (lane.ops[op] == nullptr) continue;
      SCOPED_TRACE(lane.name);
      const std::vector<Blame> blamed = trial.run({Planted{lane.name, op, op}});
      if (blamed.empty()) continue;
      ++shown;
      ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
      EXPECT_EQ(blamed[0].op, op) << sentences(blamed);
    }
  }
  EXPECT_GE(shown, 10);
}

// A value is what its rows gave, of first tokens those in 16 bits: codes would be off.
TEST(FirstTokensSessions, ContributionsAreThoseOfTheRowsThatWereRead) {
  auto session = open_first(scenario_of(kCases[0]), References::kSim);
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(session->step());
  while (!session->ran_any() || session->last_params().op() != AS_OP_PAGED_ATTENTION) {
    ASSERT_TRUE(session->op());
  }
  const auto& p = session->last_params().get<as_paged_attention_params>();
  ASSERT_EQ(p.wide_tokens, 32);
  for (const std::int64_t dim : {0, 7, 31}) {
    const auto history = value_history(*session, 0, 1, dim, {});
    ASSERT_TRUE(history) << history.error().text();
    ASSERT_GT(history->contributions.size(), 33u);
    EXPECT_NEAR(history->sum, history->output, 2e-3 + 0.005 * std::fabs(history->output));
    for (const Contribution& c : history->contributions) {
      const as_tensor& table = c.row < 32 ? p.wide_table : p.table;
      const std::int64_t rows = c.row < 32 ? 8 : 16;
      EXPECT_EQ(c.status, "contributed");
      EXPECT_EQ(c.block,
                *at<std::int32_t>(table, *at<std::int32_t>(p.token_to_req, 0), c.row / rows));
    }
  }
}

// A table of first tokens ends with them, and tokens behind have no slot.
TEST(FirstTokensSessions, TablesAndSlotsEndAtTheBorder) {
  auto session = open_first(scenario_of(kCases[0]), References::kNone);
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(session->step());
  const StepMetadata& m = session->metadata();
  const int first = session->parts().layout.groups[0].kind == GroupKind::kFirst ? 0 : 1;
  const std::int64_t rows = m.num_live();
  EXPECT_EQ(m.counts[static_cast<std::size_t>(first * rows)], 4);
  for (std::size_t t = 0; t < m.positions.size(); ++t) {
    const std::int64_t slot = m.slots[static_cast<std::size_t>(first) * m.positions.size() + t];
    EXPECT_EQ(slot < 0, m.positions[t] >= 32) << m.positions[t];
  }
}

// Whole steps of a device, its single ops and steps of the host; what a step's slots end with is
// made on the device, too.
TEST(FirstTokensSessions, ADeviceGivesTheSameBytesAsTheHost) {
  const auto device = std::make_shared<HostDevice>();
  const auto open = [&](const char* lane) {
    SessionOptions options;
    options.references = References::kNone;
    options.threads = 2;
    options.lanes = {lane};
    if (std::string_view(lane) == "cuda") options.device = device;
    auto session = Session::create(scenario_of(kCases[0]), host_device::lanes(), options);
    EXPECT_TRUE(session) << session.error().text();
    return session ? std::move(*session) : nullptr;
  };
  auto host = open("cpu"), whole = open("cuda");
  ASSERT_NE(host, nullptr);
  ASSERT_NE(whole, nullptr);
  while (!host->finished()) {
    for (Session* session : {host.get(), whole.get()}) {
      const auto ok = session->step();
      ASSERT_TRUE(ok) << ok.error().text();
    }
    ASSERT_EQ(whole->digest(), host->digest()) << host->cursor().step;
    ASSERT_EQ(whole->metadata().slots, host->metadata().slots);
    ASSERT_EQ(whole->history().back().sampled, host->history().back().sampled);
  }
  EXPECT_FALSE(whole->device_error());
  EXPECT_GT(device->counts.replays, 0);
}

}  // namespace first_tokens_sessions_test
}  // namespace attnscope
