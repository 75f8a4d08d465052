// Encoders: models of dense attention without caches, whose requests are computed whole in one
// step.
#include <fmt/format.h>

#include <cmath>

#include "app/wiring/dense/dense_reference.h"
#include "engine/sched/serving.h"
#include "engine/trace/tap_result.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/blame/dense_session.h"
#include "tests/blame/encoder_session.h"
#include "tests/blame/trial.h"

namespace attnscope {
namespace encoder_sessions_test {

const char* const kEncoders[] = {"tiny-bert", "tiny-vit"};

TEST(EncoderSessions, AgreeWithAllReferences) {
  for (const ModelConfig& model : {*preset("tiny-bert"), *preset("tiny-vit"), biased_encoder()}) {
    SCOPED_TRACE(model.name);
    const Scenario scenario = encoder_scenario(model);
    SessionOptions options;
    options.references = References::kBoth;
    options.witness = true;
    options.threads = 2;
    auto session = Session::create(scenario, all_lanes(), options);
    ASSERT_TRUE(session) << session.error().text();
    std::vector<std::int64_t> tokens;
    while (!(*session)->finished()) {
      const auto ok = (*session)->step();
      ASSERT_TRUE(ok) << ok.error().text();
      tokens.push_back((*session)->history().back().tokens);
      for (const TapResult& r : (*session)->history().back().results) {
        EXPECT_NE(r.verdict, Verdict::kWrong)
            << as_op_find(r.op)->name << '.' << r.tap << ": " << r.note;
        EXPECT_NE(r.verdict, Verdict::kNotCompared) << as_op_find(r.op)->name << '.' << r.tap;
      }
    }
    EXPECT_EQ(tokens, (std::vector<std::int64_t>{98, 83, 100}));
    for (const Request& r : (*session)->serving().requests()) {
      EXPECT_EQ(r.state, RequestState::kFinished);
      EXPECT_EQ(r.num_tokens(), r.prompt_tokens + 1);
    }
    EXPECT_EQ((*session)->serving().totals().hits, 0);
    EXPECT_TRUE((*session)->parts().layout.groups.empty());
  }
}

// A request computes the same whatever is packed beside it.
TEST(EncoderSessions, RequestsDoNotSeeEachOther) {
  const auto sampled = [](const Scenario& scenario) {
    std::map<std::string, std::int32_t> tokens;
    auto session = session_of(scenario, References::kNone);
    while (!session->finished()) EXPECT_TRUE(session->step());
    for (const Request& r : session->serving().requests()) tokens[r.name] = r.tokens.back();
    return tokens;
  };
  for (const char* name : kEncoders) {
    const Scenario all = encoder_scenario(*preset(name));
    const auto together = sampled(all);
    for (const ScenarioRequest& one : all.requests) {
      Scenario alone = all;
      alone.requests = {one};
      alone.requests[0].arrival_step = 0;
      EXPECT_EQ(sampled(alone).at(one.name), together.at(one.name)) << name << ' ' << one.name;
    }
  }
}

TEST(EncoderSessions, PlantedBugsAreNamed) {
  std::map<std::string, int> shown;
  std::vector<Planted> bugs;
  for (const Lane& lane : mutants::lanes()) {
    if (lane.ops[AS_OP_VARLEN_ATTENTION] == nullptr) continue;
    bugs.push_back({lane.name, AS_OP_VARLEN_ATTENTION, AS_OP_VARLEN_ATTENTION});
  }
  EXPECT_GE(bugs.size(), 10u);
  for (const ModelConfig& model :
       {*preset("tiny-bert"), *preset("tiny-vit"), biased_encoder(), *preset("tiny-t5")}) {
    const bool sided = !model.dense.sides.empty();
    Trial trial(session_of(sided ? dense_scenario(model) : encoder_scenario(model)));
    for (const Planted& bug : bugs) {
      SCOPED_TRACE(model.name + ", " + bug.name);
      const std::vector<Blame> blamed = trial.run({bug});
      if (blamed.empty()) continue;
      ++shown[bug.name];
      ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
      EXPECT_EQ(blamed[0].op, AS_OP_VARLEN_ATTENTION) << sentences(blamed);
      EXPECT_EQ(blamed[0].first.step, kStepUnderTest);
    }
    for (const char* other : {"mutant:residual_dropped", "mutant:norm_eps_missing"}) {
      const Lane* lane = all_lanes().find(other);
      if (lane == nullptr) continue;
      for (int op = 0; op < AS_OP_COUNT; ++op) {
        if (lane->ops[op] == nullptr) continue;
        const auto id = static_cast<as_op_id>(op);
        for (const Blame& blame : trial.run({{other, id, id}})) EXPECT_EQ(blame.op, id);
      }
    }
  }
  // No encoder of ours has windows.
  for (const Planted& bug : bugs) {
    const bool window = bug.name.find("window") != std::string::npos;
    EXPECT_EQ(shown[bug.name] > 0, !window) << bug.name;
  }
}

// Any two at once: nobody else is blamed.
TEST(EncoderSessions, PlantedBugsWithOthersAccuseNobodyElse) {
  Trial trial(session_of(encoder_scenario(biased_encoder())));
  for (const char* other : {"q_proj", "o_proj"}) {
    const auto op = static_cast<as_op_id>(as_op_by_name(other));
    for (const Lane& lane : mutants::lanes()) {
      if (lane.ops[op] == nullptr) continue;
      for (const char* mine : {"mutant:varlen_border_late", "mutant:varlen_lse_base_2"}) {
        int both = 0;
        check_pair(trial, {mine, AS_OP_VARLEN_ATTENTION, AS_OP_VARLEN_ATTENTION},
                   {lane.name, op, op}, &both);
      }
    }
  }
}

// Back to the beginning and forward again: the same bytes.
TEST(EncoderSessions, GoBackAndForth) {
  auto session = session_of(encoder_scenario(*preset("tiny-bert")));
  while (!session->finished()) ASSERT_TRUE(session->step());
  const auto last = session->serving().requests().back().tokens;
  const std::size_t steps = session->history().size();
  ASSERT_TRUE(session->seek({1, -1, 0, false}));
  while (!session->finished()) ASSERT_TRUE(session->step());
  EXPECT_EQ(session->history().size(), steps);
  EXPECT_EQ(session->serving().requests().back().tokens, last);
  EXPECT_TRUE(session->replay_faults().empty());
}

TEST(EncoderSessions, RanksAddUp) {
  Scenario whole = encoder_scenario(*preset("tiny-bert"));
  for (int rank = 0; rank < 2; ++rank) {
    Scenario part = whole;
    part.parallel = {2, rank};
    SessionOptions options;
    options.references = References::kSim;
    options.witness = true;
    options.threads = 2;
    auto session = Session::create(part, all_lanes(), options);
    ASSERT_TRUE(session) << session.error().text();
    while (!(*session)->finished()) {
      ASSERT_TRUE((*session)->step());
      const auto blamed = blame((*session)->history().back().results);
      EXPECT_TRUE(blamed.empty()) << sentences(blamed);
    }
  }
}

// A session says so before it begins.
TEST(EncoderSessions, RequestsThatDoNotFitAreRefused) {
  const auto error = [](const auto& change) {
    Scenario s = encoder_scenario(*preset("tiny-bert"));
    change(s);
    const auto session = Session::create(s, all_lanes(), SessionOptions());
    return session ? std::string() : session.error().text();
  };
  EXPECT_EQ(error([](Scenario&) {}), "");
  const std::string longer = error([](Scenario& s) { s.limits.token_budget = 56; });
  EXPECT_NE(longer.find("\"r0\" has 57 tokens, a step 56"), std::string::npos) << longer;
  EXPECT_NE(longer.find("raise token_budget to at least 57"), std::string::npos) << longer;
  const std::string more = error([](Scenario& s) { s.requests[1].max_new_tokens = 3; });
  EXPECT_NE(more.find("\"r1\" is to have 3 new tokens"), std::string::npos) << more;
}

}  // namespace encoder_sessions_test
}  // namespace attnscope
