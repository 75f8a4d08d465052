// Encoder-decoders: sessions of tiny-t5, whose encoder sees a source whole in the step of its
// prompt and whose cross attention reads keys that were written then.
#include <map>
#include <set>

#include "engine/model/numbers.h"
#include "engine/sched/serving.h"
#include "engine/session/observer.h"
#include "engine/trace/tap_result.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/blame/dense_session.h"
#include "tests/blame/trial.h"

namespace attnscope {
namespace cross_sessions_test {

Scenario sided_scenario() {
  Scenario s = dense_scenario(*preset("tiny-t5"));
  s.decode_steps = 8;
  for (ScenarioRequest& request : s.requests) request.max_new_tokens = 7;
  add_request(s, 40, 5, 2);
  return s;
}

// Steps to the end; every tap is judged, none is wrong.
std::map<std::string, std::vector<std::int32_t>> run_sound(Session& session) {
  while (!session.finished()) {
    const auto ok = session.step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) break;
    for (const TapResult& r : session.history().back().results) {
      EXPECT_NE(r.verdict, Verdict::kWrong)
          << as_op_find(r.op)->name << '.' << r.tap << ": " << r.note;
      if (session.references() == References::kNone) continue;
      EXPECT_NE(r.verdict, Verdict::kNotCompared) << as_op_find(r.op)->name << '.' << r.tap;
    }
  }
  std::map<std::string, std::vector<std::int32_t>> tokens;
  for (const Request& r : session.serving().requests()) tokens[r.name] = r.tokens;
  return tokens;
}

std::unique_ptr<Session> judged(const Scenario& scenario) {
  SessionOptions options;
  options.references = References::kBoth;
  options.witness = true;
  options.threads = 2;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

TEST(CrossSessions, AgreeWithAllReferences) {
  const auto session = judged(sided_scenario());
  ASSERT_NE(session, nullptr);
  run_sound(*session);
  for (const Request& r : session->serving().requests()) {
    EXPECT_EQ(r.state, RequestState::kFinished);
    EXPECT_EQ(r.source_tokens, r.prompt_tokens - 2);
  }
  EXPECT_EQ(session->serving().totals().hits, 0);
}

TEST(CrossSessions, HaveLayersOfThreeKinds) {
  const auto session = session_of(sided_scenario(), References::kNone);
  const ModelGraph& graph = *session->parts().graph;
  EXPECT_NE(graph.before.find(AS_OP_CROSS_BATCH), nullptr);
  const std::vector<std::string> kinds = {"encoder", "encoder", "full", "cross", "full", "cross"};
  for (int i = 0; i < 6; ++i) {
    const LayerGraph& layer = graph.layer(i);
    EXPECT_EQ(layer_type_name(session->parts().config, i), kinds[static_cast<std::size_t>(i)]);
    const bool encodes = i < 2, cross = i == 3 || i == 5;
    EXPECT_EQ(layer.find(AS_OP_VARLEN_ATTENTION) != nullptr, encodes);
    EXPECT_EQ(layer.find(AS_OP_PAGED_ATTENTION) != nullptr, !encodes);
    EXPECT_EQ(layer.find(AS_OP_MEMORY_NORM) != nullptr, cross);
    EXPECT_EQ(session->parts().layout.find(i, {AS_CACHE_K, 0}) != nullptr, !encodes);
  }
  EXPECT_EQ(session->parts().layout.groups.size(), 1u);
}

// By request: steps in which a cross layer got rows of it, all of its source each time.
class CrossWrites : public SessionObserver {
 public:
  void op_done(const Session& s) override {
    if (s.cursor().layer != 3 || s.last_params().op() != AS_OP_ROPE_KV_INSERT) return;
    const as_tensor& slots = s.last_params().get<as_rope_kv_insert_params>().slots;
    std::map<std::int32_t, std::int64_t> rows;
    for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
      const std::int32_t row = s.metadata().token_to_req[to_size(t)];
      if (*at<std::int64_t>(slots, t) >= 0) ++rows[s.metadata().live[to_size(row)]];
    }
    for (const auto& [request, count] : rows) {
      ++written[request];
      EXPECT_EQ(count, s.serving().requests()[to_size(request)].source_tokens);
    }
  }
  void step_done(const Session&) override {}
  void went_back(const Session&) override {}
  std::map<std::int32_t, int> written;
};

// What cross attention reads is written in the step of the prompt and never again.
TEST(CrossSessions, WriteKeysOfTheSourceOnce) {
  const auto session = session_of(sided_scenario(), References::kNone);
  CrossWrites writes;
  session->set_observer(&writes);
  while (!session->finished()) ASSERT_TRUE(session->step());
  session->set_observer(nullptr);
  EXPECT_EQ(writes.written, (std::map<std::int32_t, int>{{0, 1}, {1, 1}, {2, 1}}));
}

// A request says the same whatever is computed beside it.
TEST(CrossSessions, RequestsDoNotSeeEachOther) {
  const Scenario all = sided_scenario();
  const auto together = run_sound(*session_of(all, References::kNone));
  for (const ScenarioRequest& one : all.requests) {
    Scenario alone = all;
    alone.requests = {one};
    alone.requests[0].arrival_step = 0;
    EXPECT_EQ(run_sound(*session_of(alone, References::kNone)).at(one.name), together.at(one.name));
  }
}

// One that loses its blocks is computed anew, its source too, and goes on as if nothing had been.
TEST(CrossSessions, ComeBackFromPreemption) {
  Scenario s = sided_scenario();
  for (ScenarioRequest& request : s.requests) request.max_new_tokens = 24;
  s.decode_steps = 40;
  const auto wide = run_sound(*session_of(s, References::kNone));
  s.pool_blocks = 11;
  const auto session = judged(s);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(run_sound(*session), wide);
  EXPECT_GT(session->serving().totals().preemptions, 0);
}

TEST(CrossSessions, GoBackAndForth) {
  const auto session = session_of(sided_scenario(), References::kNone);
  while (!session->finished()) ASSERT_TRUE(session->step());
  const auto last = session->serving().requests().front().tokens;
  ASSERT_TRUE(session->seek({2, -1, 0, false}));
  while (!session->finished()) ASSERT_TRUE(session->step());
  EXPECT_EQ(session->serving().requests().front().tokens, last);
  EXPECT_TRUE(session->replay_faults().empty());
}

// Two bugs at once: each is named, nobody else is.
TEST(CrossSessions, PlantedBugsWithOthersAccuseNobodyElse) {
  Trial trial(session_of(dense_scenario(*preset("tiny-t5"))));
  const std::pair<const char*, as_op_id> mine[] = {
      {"mutant:cross_keys_of_neighbour", AS_OP_PAGED_ATTENTION},
      {"mutant:bias_missing", AS_OP_VARLEN_ATTENTION},
      {"mutant:memory_not_normed", AS_OP_MEMORY_NORM}};
  for (const auto& [name, op] : mine) {
    int both = 0;
    for (const Lane& lane : mutants::lanes()) {
      if (lane.ops[AS_OP_O_PROJ] == nullptr) continue;
      check_pair(trial, {name, op, op}, {lane.name, AS_OP_O_PROJ, AS_OP_O_PROJ}, &both);
    }
    EXPECT_GT(both, 0) << name;
  }
}

TEST(CrossSessions, RequestsThatDoNotFitAreRefused) {
  const auto error = [](const auto& change) {
    Scenario s = sided_scenario();
    change(s);
    const auto session = Session::create(s, all_lanes(), SessionOptions());
    return session ? std::string() : session.error().text();
  };
  EXPECT_EQ(error([](Scenario&) {}), "");
  const std::string cut = error([](Scenario& s) { s.limits.token_budget = 77; });
  EXPECT_NE(cut.find("\"r0\" has 71 tokens and 7 new, a step 77"), std::string::npos) << cut;
  EXPECT_NE(cut.find("raise token_budget to at least 78"), std::string::npos) << cut;
  const std::string none = error([](Scenario& s) { s.requests[1].tokens.resize(2); });
  EXPECT_NE(none.find("nothing is left for its source"), std::string::npos) << none;
  const std::string ranks = error([](Scenario& s) { s.parallel = {2, 0}; });
  EXPECT_NE(ranks.find("is an encoder-decoder"), std::string::npos) << ranks;
}

}  // namespace cross_sessions_test
}  // namespace attnscope
