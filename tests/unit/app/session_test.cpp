// The session: stepping, going back, determinism, blame.
#include "engine/session/session.h"

#include <gtest/gtest.h>

#include <map>

#include "app/wiring/wiring.h"
#include "engine/family/deepseek_v4/caches.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/small_scenario.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace session_test {

std::unique_ptr<Session> make(const Scenario& scenario, References references = References::kNone,
                              std::vector<std::string> lanes = {"cpu"}, int threads = 2,
                              std::int64_t rewind_every = 3) {
  SessionOptions options;
  options.references = references;
  options.lanes = std::move(lanes);
  options.threads = threads;
  options.rewind_every = rewind_every;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return std::move(*session);
}

TEST(Session, EveryRequestGetsItsTokensAndAllBlocksComeBack) {
  auto session = make(small_scenario());
  finish(*session);
  for (const Request& request : session->serving().requests()) {
    EXPECT_EQ(request.state, RequestState::kFinished);
    EXPECT_EQ(request.num_tokens(), request.max_len());
  }
  EXPECT_EQ(session->serving().num_free(), session->serving().num_blocks() - 1);
  EXPECT_EQ(session->next_op(), AS_OP_COUNT);
  EXPECT_TRUE(session->op());  // nothing to do is no error
}

TEST(Session, BytesDoNotDependOnThreads) {
  std::map<int, std::uint64_t> digests;
  for (int threads : {1, 2, 3, 5}) {
    auto session = make(small_scenario(), References::kNone, {"cpu"}, threads);
    std::uint64_t digest = 0;
    while (!session->finished()) {
      ASSERT_TRUE(session->step());
      digest = digest * 31 + session->digest();
    }
    digests[threads] = digest;
  }
  for (const auto& [threads, digest] : digests) EXPECT_EQ(digest, digests[1]) << threads;
}

TEST(Session, DifferentSeedsGiveDifferentBytes) {
  Scenario other = small_scenario();
  other.seed = 4;
  auto a = make(small_scenario()), b = make(other);
  ASSERT_TRUE(a->step());
  ASSERT_TRUE(b->step());
  EXPECT_NE(a->digest(), b->digest());
}

TEST(Session, OpsLayersAndStepsArriveAtTheSamePlace) {
  auto by_op = make(small_scenario()), by_layer = make(small_scenario()),
       by_step = make(small_scenario());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(by_step->step());
    while (by_op->cursor().step < by_step->cursor().step) ASSERT_TRUE(by_op->op());
    while (by_layer->cursor().step < by_step->cursor().step) ASSERT_TRUE(by_layer->layer());
    EXPECT_EQ(by_op->digest(), by_step->digest());
    EXPECT_EQ(by_layer->digest(), by_step->digest());
    EXPECT_EQ(by_op->cursor(), by_step->cursor());
    EXPECT_EQ(by_layer->cursor(), by_step->cursor());
  }
}

TEST(Session, LayerStopsAtEveryLayerOnce) {
  auto session = make(small_scenario());
  std::vector<int> layers;
  while (session->cursor().step == 0) {
    layers.push_back(session->cursor().layer);
    ASSERT_TRUE(session->layer());
  }
  // Step ops, four layers; this step samples nothing or has its head: at most one more stop.
  ASSERT_GE(layers.size(), 5u);
  EXPECT_EQ((std::vector<int>(layers.begin(), layers.begin() + 5)),
            (std::vector<int>{-1, 0, 1, 2, 3}));
  EXPECT_LE(layers.size(), 6u);
}

TEST(Session, GoingBackAndReplayingGivesTheSameBytes) {
  auto session = make(small_scenario(), References::kSim);
  std::vector<std::uint64_t> digests;
  std::vector<std::vector<TapResult>> results;
  for (int i = 0; i < 8; ++i) {
    digests.push_back(session->digest());
    ASSERT_TRUE(session->step());
    results.push_back(session->history().back().results);
  }
  for (std::int64_t target : {7, 5, 6, 1, 0, 4}) {
    ASSERT_TRUE(session->seek({target, -1, 0, false}));
    EXPECT_EQ(session->cursor().step, target);
    EXPECT_EQ(session->digest(), digests[static_cast<std::size_t>(target)]) << target;
    EXPECT_EQ(session->history().size(), static_cast<std::size_t>(target));
    ASSERT_TRUE(session->step());
    const auto& again = session->history().back().results;
    const auto& before = results[static_cast<std::size_t>(target)];
    ASSERT_EQ(again.size(), before.size());
    for (std::size_t i = 0; i < again.size(); ++i) {
      EXPECT_EQ(again[i].verdict, before[i].verdict) << again[i].tap << ": " << again[i].note;
      EXPECT_EQ(again[i].budget_used, before[i].budget_used);
    }
  }
}

TEST(Session, StepBackAndOpBackUndoExactlyOne) {
  auto session = make(small_scenario());
  ASSERT_TRUE(session->step());
  const Cursor boundary = session->cursor();
  ASSERT_TRUE(session->step());
  ASSERT_TRUE(session->step_back());
  EXPECT_EQ(session->cursor(), boundary);
  std::vector<Cursor> path;
  for (int i = 0; i < 12; ++i) {
    path.push_back(session->cursor());
    ASSERT_TRUE(session->op());
  }
  for (int i = 11; i >= 0; --i) {
    ASSERT_TRUE(session->op_back());
    EXPECT_EQ(session->cursor(), path[static_cast<std::size_t>(i)]);
  }
  ASSERT_TRUE(session->op_back());  // across the boundary into the step before
  EXPECT_EQ(session->cursor().step, boundary.step - 1);
  ASSERT_TRUE(session->op());
  EXPECT_EQ(session->cursor(), boundary);
}

TEST(Session, GoingBackAndForwardAgainKeepsTheRecordsOfAllSteps) {
  auto session = small_session(References::kNone, small_scenario(), "cpu", 2);
  run_steps(*session, 6);
  ASSERT_TRUE(session->seek({1, -1, 0, false}));
  ASSERT_TRUE(session->seek({5, -1, 0, false}));  // beyond checkpoints at 2 and 4
  ASSERT_EQ(session->history().size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(session->history()[i].step, static_cast<std::int64_t>(i));
    EXPECT_FALSE(session->history()[i].timings.empty()) << i;
  }
}

TEST(Session, SeekToAPlaceThatDoesNotExistIsAnError) {
  auto session = make(small_scenario());
  EXPECT_FALSE(session->seek({0, 17, 0, false}));
  EXPECT_FALSE(session->seek({100000, -1, 0, false}));
  EXPECT_FALSE(session->seek({-1, -1, 0, false}));
}

TEST(Session, CancelStaysInForceUntilResume) {
  auto session = make(small_scenario());
  session->cancel();
  ASSERT_TRUE(session->step());
  ASSERT_TRUE(session->step());
  EXPECT_TRUE(session->cancelled());
  EXPECT_EQ(session->cursor(), (Cursor{0, -1, 2, false}));  // an op each
  ASSERT_TRUE(session->layer());
  EXPECT_EQ(session->cursor(), (Cursor{0, -1, 3, false}));
  ASSERT_TRUE(session->seek({4, -1, 0, false}));
  EXPECT_EQ(session->cursor().step, 0);
  const auto ran = session->run_until([](const Session&) { return false; });
  ASSERT_TRUE(ran);
  EXPECT_FALSE(session->finished());
  session->resume();
  ASSERT_TRUE(session->seek({4, -1, 0, false}));
  EXPECT_EQ(session->cursor().step, 4);
}

TEST(Session, ItsObserverSeesEveryOpStepAndWayBackOnce) {
  class Log : public SessionObserver {
   public:
    void op_done(const Session& s) override {
      ops.push_back(s.next_op());  // not yet advanced: the op that ran
      EXPECT_EQ(s.last_params().op(), s.next_op());
      EXPECT_EQ(s.current().timings.size(), ops.size() - at_step);
    }
    void step_done(const Session& s) override {
      EXPECT_EQ(static_cast<std::size_t>(s.cursor().step), s.history().size());
      EXPECT_EQ(s.history().back().timings.size(), ops.size() - at_step);
      EXPECT_GE(s.history().back().wall_seconds, s.history().back().seconds);
      at_step = ops.size();
      ++steps;
    }
    void went_back(const Session& s) override { back.push_back(s.cursor().step); }
    std::vector<as_op_id> ops;
    std::size_t at_step = 0;
    int steps = 0;
    std::vector<std::int64_t> back;
  } log;
  auto session = make(small_scenario());
  session->set_observer(&log);
  ASSERT_TRUE(session->seek({4, -1, 0, false}));
  EXPECT_EQ(log.steps, 4);
  std::size_t ops = 0;
  for (const StepRecord& step : session->history()) ops += step.timings.size();
  EXPECT_EQ(log.ops.size(), ops);
  EXPECT_TRUE(log.back.empty());
  // One way back, and no more is replayed than it takes: from the checkpoint at step 3.
  ASSERT_TRUE(session->op_back());
  EXPECT_EQ(log.back, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(log.ops.size(), ops + session->current().timings.size());
  EXPECT_EQ(log.steps, 4);
  session->set_observer(nullptr);
  ASSERT_TRUE(session->op());
  EXPECT_EQ(log.steps, 4);
}

TEST(Session, GoingForwardInsideAStepDoesNotReplay) {
  auto session = make(small_scenario());
  ASSERT_TRUE(session->seek({1, 1, 2, false}));
  const double before = session->current().timings.front().microseconds;
  ASSERT_TRUE(session->seek({1, 1, 5, false}));
  ASSERT_TRUE(session->seek({1, 1, 5, false}));
  ASSERT_TRUE(session->seek({1, 3, 0, false}));
  EXPECT_EQ(session->current().timings.front().microseconds, before);  // measured once
  ASSERT_TRUE(session->seek({1, 2, 7, false}));
  EXPECT_EQ(session->cursor(), (Cursor{1, 2, 7, false}));
}

TEST(Session, RunUntilStopsRightAfterThePredicateHolds) {
  auto session = make(small_scenario());
  const auto stopped = session->run_until([](const Session& s) {
    return s.last_params().op() == AS_OP_INDEXER_TOPK && s.cursor().step == 2;
  });
  ASSERT_TRUE(stopped);
  EXPECT_TRUE(*stopped);
  EXPECT_EQ(session->cursor().step, 2);
  EXPECT_EQ(session->next_op(), AS_OP_TOPK_TO_SLOTS);
  const auto never = session->run_until([](const Session&) { return false; });
  ASSERT_TRUE(never);
  EXPECT_FALSE(*never);
  EXPECT_TRUE(session->finished());
}

TEST(Session, BothReferencesAgreeAndNothingIsLeftUncompared) {
  auto session = make(small_scenario(), References::kBoth);
  finish(*session);
  std::vector<TapResult> all;
  for (const StepRecord& step : session->history()) {
    all.insert(all.end(), step.results.begin(), step.results.end());
  }
  const Summary summary = summarise(all, session->parts().tolerances.drift_limit());
  EXPECT_EQ(summary.verdict(), "ok");
  EXPECT_EQ(summary.count(Verdict::kNotCompared), 0);
  EXPECT_GT(summary.count(Verdict::kEqual), 0);
  EXPECT_GT(summary.taps, 500);
  EXPECT_EQ(summary.drift.size(), 4u);
}

TEST(Session, MxFp4AndHadamardProfileAgreesWithTheReferencesToo) {
  Scenario scenario = small_scenario(70, 3);
  scenario.model.switches = *profile_switches("deepseek");
  auto session = make(scenario, References::kBoth);
  finish(*session);
  for (const StepRecord& step : session->history()) {
    for (const TapResult& r : step.results) {
      EXPECT_NE(r.verdict, Verdict::kWrong) << as_op_find(r.op)->name << "." << r.tap << r.note;
    }
  }
}

// A flipped bit in a page blames the cache at the read, names slot and step, and not the reader.
TEST(Session, AChangedCacheByteBlamesTheCache) {
  auto session = make(small_scenario(), References::kSim);
  ASSERT_TRUE(session->step());
  ASSERT_TRUE(session->step());
  const auto at_attention = session->run_until([](const Session& s) {
    return s.next_op() == AS_OP_SPARSE_ATTENTION && s.cursor().layer == 0;
  });
  ASSERT_TRUE(at_attention && *at_attention);
  const as_cache cache = session->slab().cache(*session->parts().layout.find(0, kSwaCache));
  const std::int32_t slot = session->metadata().tensor("swa_indices")->numbers[0];
  ASSERT_GE(slot, 0);
  as_cache_row(&cache, slot).payload[5] ^= 0x40;
  ASSERT_TRUE(session->op());
  const TapResult* read = nullptr;
  for (const TapResult& r : session->current_results()) {
    if (r.op == AS_OP_SPARSE_ATTENTION && r.tap == "cache.read") read = &r;
  }
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->verdict, Verdict::kWrong);
  EXPECT_NE(read->note.find("slot " + std::to_string(slot)), std::string::npos) << read->note;
  EXPECT_NE(read->note.find("holds other bytes"), std::string::npos) << read->note;
  const Summary summary = summarise(session->current_results(), 1);
  ASSERT_TRUE(summary.first_wrong);
  EXPECT_EQ(summary.first_wrong->tap, "cache.read");
}

struct Mutant {
  const char* lane;
  as_op_id op;
  const char* tap;
};

class Mutants : public testing::TestWithParam<Mutant> {};

TEST_P(Mutants, AreNamedByTheFirstWrongTap) {
  // Long enough for a full window, entries of both ratios and an overlap.
  auto session = make(small_scenario(200, 2), References::kSim, {GetParam().lane});
  finish(*session);
  std::vector<TapResult> all;
  for (const StepRecord& step : session->history()) {
    all.insert(all.end(), step.results.begin(), step.results.end());
  }
  const Summary summary = summarise(all, 1);
  ASSERT_TRUE(summary.first_wrong) << "nothing noticed";
  EXPECT_EQ(as_op_find(summary.first_wrong->op)->name,
            std::string(as_op_find(GetParam().op)->name));
  EXPECT_EQ(summary.first_wrong->tap, GetParam().tap);
  // No other op is accused.
  for (const TapResult& r : all) {
    if (r.verdict == Verdict::kWrong) {
      EXPECT_EQ(r.op, GetParam().op) << as_op_find(r.op)->name << "." << r.tap << ": " << r.note;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Mutants,
    testing::Values(Mutant{"mutant:window_off_by_one", AS_OP_SWA_INDEX, "indices"},
                    Mutant{"mutant:topk_one_short", AS_OP_INDEXER_TOPK, "indices"},
                    Mutant{"mutant:scale_rounded_down", AS_OP_Q_ROPE_KV_INSERT, "cache"},
                    Mutant{"mutant:relu_missing", AS_OP_INDEXER_LOGITS, "logits"},
                    Mutant{"mutant:sink_scaled", AS_OP_SPARSE_ATTENTION, "o"},
                    Mutant{"mutant:lse_with_sink", AS_OP_SPARSE_ATTENTION, "lse"},
                    Mutant{"mutant:overlap_half_lost", AS_OP_COMPRESS_INSERT, "row"},
                    Mutant{"mutant:entry_rope_position", AS_OP_COMPRESS_INSERT, "row"}),
    [](const auto& mutant) {
      const std::string lane = mutant.param.lane;
      return lane.substr(lane.find(':') + 1);
    });

TEST(Session, UnknownLanesAndOpsAreUsageErrorsWithTheAllowedValues) {
  SessionOptions options;
  const LaneRegistry registry = all_lanes();
  struct Case {
    const char* choice;
    const char* expected;
  };
  for (const Case& c :
       {Case{"gpu", "did you mean cpu"}, Case{"indexer_topk=gpu", "unknown lane \"gpu\""},
        Case{"indexer_top=cpu", "indexer_topk"}, Case{"ref.sim", "not a kernel"},
        Case{"wo_a=mutant:topk_one_short", "has no op wo_a"}}) {
    options.lanes = {"cpu", c.choice};
    const auto session = Session::create(small_scenario(), registry, options);
    ASSERT_FALSE(session) << c.choice;
    EXPECT_EQ(session.error().code, AS_USAGE);
    EXPECT_NE(session.error().text().find(c.expected), std::string::npos) << session.error().text();
  }
}

// Lanes that break the contract without computing anything wrong.
std::int32_t writes_nothing(const void*, const as_call*, as_error*) { return AS_OK; }

std::int32_t clobbers_input(const void* params, const as_call* call, as_error* error) {
  const std::int32_t status = cpu::lane()->ops[AS_OP_ATTN_NORM](params, call, error);
  const auto& p = *static_cast<const as_rms_norm_params*>(params);
  at<bf16_t>(p.x)->bits ^= 0x4000;
  return status;
}

const TapResult* first_wrong_of(as_op_id op, as_op_fn function, Summary* summary) {
  Lane lane{};
  lane.name = "mutant:contract";
  lane.description = "breaks the lane contract";
  lane.ops[op] = function;
  LaneRegistry registry = all_lanes();
  registry.add(lane);
  SessionOptions options;
  options.references = References::kSim;
  options.lanes = {"mutant:contract"};
  auto session = Session::create(small_scenario(60, 2), registry, options);
  EXPECT_TRUE(session);
  std::vector<TapResult> all;
  for (int i = 0; i < 3 && !(*session)->finished(); ++i) {
    if (!(*session)->step()) break;  // a later op may refuse what it is given
  }
  for (const StepRecord& step : (*session)->history()) {
    all.insert(all.end(), step.results.begin(), step.results.end());
  }
  const auto& rest = (*session)->current_results();
  if (all.empty()) all = rest;
  *summary = summarise(all, 1);
  return summary->first_wrong ? &*summary->first_wrong : nullptr;
}

TEST(Session, ALaneThatWritesNothingIsNamedInEveryLayer) {
  Summary summary;
  const TapResult* wrong = first_wrong_of(AS_OP_TOPK_TO_SLOTS, writes_nothing, &summary);
  ASSERT_NE(wrong, nullptr);
  EXPECT_EQ(wrong->op, AS_OP_TOPK_TO_SLOTS);
}

TEST(Session, ALaneThatWritesToItsInputIsNamed) {
  Summary summary;
  const TapResult* wrong = first_wrong_of(AS_OP_ATTN_NORM, clobbers_input, &summary);
  ASSERT_NE(wrong, nullptr);
  EXPECT_EQ(wrong->op, AS_OP_ATTN_NORM);
  EXPECT_EQ(wrong->tap, "x.input");
}

TEST(Session, OneOpCanRunOnAnotherLane) {
  auto session =
      make(small_scenario(), References::kNone, {"cpu", "indexer_topk=mutant:topk_one_short"});
  EXPECT_EQ(session->lanes().lane(AS_OP_INDEXER_TOPK), "mutant:topk_one_short");
  EXPECT_EQ(session->lanes().lane(AS_OP_WO_A), "cpu");
  EXPECT_EQ(session->lanes().description(), "cpu, indexer_topk=mutant:topk_one_short");
}

}  // namespace session_test
}  // namespace attnscope
