// Whole sessions on the GPU: the same bytes however they are stepped, graphs or not; every tap
// beside ref.sim; tokens of the CPU lane.
#include <algorithm>

#include "engine/backend/occupancy.h"
#include "engine/config/scenario.h"
#include "engine/session/session.h"
#include "engine/session/snapshot.h"
#include "kernels/cuda/cuda_lane.h"
#include "tests/gpu/support.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gpu_tests {
namespace {

std::unique_ptr<Session> make(std::vector<std::string> lanes,
                              References references = References::kNone,
                              const DraftOptions& drafts = {}, const TensorParallel& parallel = {},
                              bool serial = false, const char* profile = "vllm",
                              const char* named = nullptr) {
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(*cuda::lane());
  registry.add(*reference::sim_lane());
  registry.add(*reference::exact_lane());
  SessionOptions options;
  options.lanes = std::move(lanes);
  options.references = references;
  options.serial = serial;
  options.tolerance_file = ATTNSCOPE_SOURCE_DIR "/assets/tolerances.json";
  Scenario scenario = small_scenario(150, 40);
  if (named != nullptr) scenario = *load_scenario(named);
  scenario.serving.drafts = drafts;
  if (drafts.by_model) {
    EXPECT_TRUE(add_draft_layer(scenario.model));
  }
  scenario.parallel = parallel;
  if (profile != nullptr) scenario.model.switches = *profile_switches(profile);
  auto session = Session::create(scenario, registry, options);
  EXPECT_TRUE(session) << session.error().text();
  return std::move(*session);
}

TEST(GpuSession, OpsAndStepsAndReplaysGiveTheSameBytes) {
  auto by_step = make({"cuda"}), by_op = make({"cuda"});
  std::vector<std::uint64_t> digests;
  while (!by_step->finished()) {
    digests.push_back(by_step->digest());
    const auto ok = by_step->step();
    ASSERT_TRUE(ok) << ok.error().text();
    while (by_op->cursor().step < by_step->cursor().step) ASSERT_TRUE(by_op->op());
    ASSERT_EQ(by_op->digest(), by_step->digest()) << by_step->cursor().step;
    ASSERT_EQ(by_op->history().back().sampled, by_step->history().back().sampled);
  }
  EXPECT_FALSE(by_step->device_error());
  for (const std::int64_t to : {20, 5}) {
    ASSERT_TRUE(by_step->seek({to, -1, 0, false}));
    EXPECT_EQ(by_step->digest(), digests[static_cast<std::size_t>(to)]) << to;
  }
  for (const OpTiming& t : by_op->history().back().timings) EXPECT_GT(t.microseconds, 0) << t.op;
}

// A recorded step has no events unless times are wanted, and makes slots and lists itself: the same
// bytes and the same lists as where the host makes them, and the same where no branch runs beside
// another.
TEST(GpuSession, WholeStepsWithTimesOrListsOfTheHostOrOnOneStreamGiveTheSameBytes) {
  auto plain = make({"cuda"}), timed = make({"cuda"});
  auto serial = make({"cuda"}, References::kNone, {}, {}, true);
  auto lists = make({"cuda", "slot_mapping=cpu", "swa_index=cpu", "c128_index=cpu"});
  while (!plain->finished()) {
    timed->measure_ops(timed->cursor().step % 3 == 0);
    for (auto& session : {plain.get(), timed.get(), lists.get(), serial.get()}) {
      const auto ok = session->step();
      ASSERT_TRUE(ok) << ok.error().text();
    }
    ASSERT_EQ(timed->digest(), plain->digest()) << plain->cursor().step;
    ASSERT_EQ(lists->digest(), plain->digest()) << plain->cursor().step;
    ASSERT_EQ(serial->digest(), plain->digest()) << plain->cursor().step;
    const StepMetadata &a = plain->metadata(), &b = lists->metadata();
    ASSERT_EQ(a.slots, b.slots);
    ASSERT_EQ(a.own.size(), b.own.size());
    for (std::size_t i = 0; i < a.own.size(); ++i) {
      ASSERT_EQ(a.own[i].numbers, b.own[i].numbers) << a.own[i].name;
      ASSERT_EQ(a.own[i].slots, b.own[i].slots) << a.own[i].name;
    }
  }
  EXPECT_FALSE(plain->device_error());
  for (const OpTiming& t : plain->history().back().timings) {
    const bool on_host = t.op == AS_OP_SCHEDULE || t.op == AS_OP_BLOCK_TABLES;
    EXPECT_EQ(t.microseconds == OpTiming::kNotMeasured, !on_host) << t.op;
  }
  const auto& history = timed->history();
  for (const OpTiming& t : history[(history.size() - 1) / 3 * 3].timings) {
    EXPECT_GT(t.microseconds, 0) << t.op;
  }
}

TEST(GpuSession, EveryTapIsRightBesideRefSim) {
  for (const std::vector<std::string>& lanes :
       {std::vector<std::string>{"cuda"},
        {"cuda", "sparse_attention=cpu", "compress_insert=cpu", "q_b_proj=cpu"},
        {"cpu", "sparse_attention=cuda", "q_rope_kv_insert=cuda"}}) {
    auto session = make(lanes, References::kSim);
    for (int i = 0; i < 16 && !session->finished(); ++i) {
      const auto ok = session->step();
      ASSERT_TRUE(ok) << ok.error().text();
      for (const TapResult& result : session->history().back().results) {
        ASSERT_NE(result.verdict, Verdict::kWrong)
            << result.tap << " of op " << result.op << ", step " << i << ": " << result.note;
      }
    }
    EXPECT_FALSE(session->device_error());
  }
}

// Masks and score functions, over chunks and across too, biases by distance, rows of two sides, of
// first tokens in 16 bits, attention in two passes: recorded steps and single ops give the same
// bytes, and every tap is right beside ref.sim.
TEST(GpuSession, WhatRunsWithoutTensorCoresIsRightInRecordedStepsToo) {
  for (const char* named : {"tiny-mask", "tiny-mask-chunks", "tiny-mask-across", "tiny-t5",
                            "tiny-llama-first16", "cascade", "merged"}) {
    SCOPED_TRACE(named);
    const auto of = [&](References references) {
      return make({"cuda"}, references, {}, {}, false, nullptr, named);
    };
    auto whole = of(References::kNone), by_op = of(References::kNone);
    auto judged = of(References::kSim);
    std::int64_t recorded = 0;
    while (!whole->finished()) {
      for (auto& session : {whole.get(), judged.get()}) {
        const auto ok = session->step();
        ASSERT_TRUE(ok) << ok.error().text();
      }
      while (by_op->cursor().step < whole->cursor().step) ASSERT_TRUE(by_op->op());
      ASSERT_EQ(by_op->digest(), whole->digest()) << whole->cursor().step;
      ASSERT_EQ(judged->digest(), whole->digest()) << whole->cursor().step;
      ASSERT_EQ(judged->history().back().sampled, whole->history().back().sampled);
      for (const TapResult& result : judged->history().back().results) {
        ASSERT_NE(result.verdict, Verdict::kWrong)
            << result.tap << " of op " << result.op << ": " << result.note;
      }
      if (whole->metadata().num_tokens_in_step() == whole->metadata().num_live()) ++recorded;
    }
    EXPECT_GT(recorded, 3);
    EXPECT_FALSE(whole->device_error());
  }
}

// Ranks that share requests have their rows on the host and compute on the GPU: right beside
// ref.sim part by part, and the same bytes op by op and with nobody looking.
TEST(GpuSession, RanksThatShareRequestsAreRight) {
  const auto of = [&](References references) {
    return make({"cuda"}, references, {}, {}, false, nullptr, "context_ranks");
  };
  auto whole = of(References::kNone), by_op = of(References::kNone);
  auto judged = of(References::kSim);
  while (!whole->finished()) {
    for (auto& session : {whole.get(), judged.get()}) {
      const auto ok = session->step();
      ASSERT_TRUE(ok) << ok.error().text();
    }
    while (by_op->cursor().step < whole->cursor().step) ASSERT_TRUE(by_op->op());
    ASSERT_EQ(by_op->digest(), whole->digest()) << whole->cursor().step;
    ASSERT_EQ(judged->digest(), whole->digest()) << whole->cursor().step;
    for (const TapResult& result : judged->history().back().results) {
      ASSERT_NE(result.verdict, Verdict::kWrong)
          << result.tap << " of op " << result.op << ": " << result.note;
    }
  }
  EXPECT_FALSE(whole->device_error());
}

// Blocks go out and come back with what the device has written to them, whichever lane moves them.
TEST(GpuSession, BlocksOfPreemptedRequestsComeBackAsTheyWere) {
  const auto of = [](std::vector<std::string> lanes, References references) {
    return make(std::move(lanes), references, {}, {}, false, nullptr, "swap");
  };
  auto whole = of({"cuda"}, References::kNone), by_op = of({"cuda"}, References::kNone);
  auto by_host = of({"cuda", "swap_out=cpu", "swap_in=cpu"}, References::kNone);
  auto judged = of({"cuda"}, References::kSim);
  std::vector<std::uint64_t> digests;
  std::int64_t moves = 0;
  while (!whole->finished()) {
    digests.push_back(whole->digest());
    for (auto& session : {whole.get(), by_host.get(), judged.get()}) {
      const auto ok = session->step();
      ASSERT_TRUE(ok) << ok.error().text();
    }
    while (by_op->cursor().step < whole->cursor().step) ASSERT_TRUE(by_op->op());
    ASSERT_EQ(by_op->digest(), whole->digest()) << whole->cursor().step;
    ASSERT_EQ(by_host->digest(), whole->digest()) << whole->cursor().step;
    ASSERT_EQ(judged->digest(), whole->digest()) << whole->cursor().step;
    for (const TapResult& result : judged->history().back().results) {
      ASSERT_NE(result.verdict, Verdict::kWrong)
          << result.tap << " of op " << result.op << ": " << result.note;
      moves += moves_blocks(result.op) ? 1 : 0;
    }
  }
  EXPECT_GT(moves, 1);
  EXPECT_GT(whole->serving().totals().blocks_in, 0);
  EXPECT_FALSE(whole->device_error());
  for (const std::size_t to : {digests.size() / 2, std::size_t{3}}) {
    ASSERT_TRUE(whole->seek({static_cast<std::int64_t>(to), -1, 0, false}));
    EXPECT_EQ(whole->digest(), digests[to]) << to;
  }
}

// A step's plan, whoever makes it and however many tokens fill the graph: the same integers, and
// the same bytes of what attention makes of it.
TEST(GpuSession, PlansAreThoseOfTheHostAndAttentionFollowsThem) {
  for (const char* profile : {"vllm,attention_plan=flashmla", "vllm,attention_plan=own",
                              "vllm,attention_plan=flashmla,multiprocessors=8"}) {
    SCOPED_TRACE(profile);
    auto whole = make({"cuda"}, References::kNone, {}, {}, false, profile);
    auto by_op = make({"cuda"}, References::kNone, {}, {}, false, profile);
    auto planned_on_host =
        make({"cuda", "attention_plan=cpu"}, References::kNone, {}, {}, false, profile);
    while (!whole->finished()) {
      for (auto& session : {whole.get(), planned_on_host.get()}) {
        const auto ok = session->step();
        ASSERT_TRUE(ok) << ok.error().text();
      }
      while (by_op->cursor().step < whole->cursor().step) ASSERT_TRUE(by_op->op());
      ASSERT_EQ(by_op->digest(), whole->digest()) << whole->cursor().step;
      ASSERT_EQ(planned_on_host->digest(), whole->digest()) << whole->cursor().step;
      for (const char* name : {"plan_rows", "plan_splits", "plan_counts"}) {
        ASSERT_FALSE(whole->metadata().tensor(name)->empty());
        ASSERT_EQ(whole->metadata().tensor(name)->numbers,
                  planned_on_host->metadata().tensor(name)->numbers)
            << name;
      }
    }
    EXPECT_FALSE(whole->device_error());
    auto judged = make({"cuda"}, References::kSim, {}, {}, false, profile);
    for (int i = 0; i < 8 && !judged->finished(); ++i) {
      const auto ok = judged->step();
      ASSERT_TRUE(ok) << ok.error().text();
      for (const TapResult& result : judged->history().back().results) {
        ASSERT_NE(result.verdict, Verdict::kWrong)
            << result.tap << " of op " << result.op << ", step " << i << ": " << result.note;
      }
    }
  }
}

TEST(GpuSession, SamplesTheTokensOfTheCpuLane) {
  auto gpu = make({"cuda"}), cpu = make({"cpu"});
  while (!gpu->finished()) {
    ASSERT_TRUE(gpu->step());
    ASSERT_TRUE(cpu->step());
    // From the first near tie on the two may say different things.
    if (gpu->history().back().sampled != cpu->history().back().sampled) break;
  }
  EXPECT_GE(gpu->cursor().step, 8);
}

TEST(GpuSession, VerifiesDraftsByGraphOpByOpAndWithoutThem) {
  const DraftOptions drafts = {3, {3, 0, 2, 1}};
  auto by_step = make({"cuda"}, References::kNone, drafts);
  auto by_op = make({"cuda"}, References::kNone, drafts);
  std::vector<std::uint64_t> digests;
  while (!by_step->finished()) {
    digests.push_back(by_step->digest());
    const auto ok = by_step->step();
    ASSERT_TRUE(ok) << ok.error().text();
    while (by_op->cursor().step < by_step->cursor().step) ASSERT_TRUE(by_op->op());
    ASSERT_EQ(by_op->digest(), by_step->digest()) << by_step->cursor().step;
    ASSERT_EQ(by_op->history().back().sampled, by_step->history().back().sampled);
    ASSERT_EQ(by_op->history().back().accepted, by_step->history().back().accepted);
  }
  EXPECT_FALSE(by_step->device_error());
  const ServingTotals totals = by_step->serving().totals();
  EXPECT_GT(totals.accepted, 0);
  EXPECT_LT(totals.accepted, totals.drafted);
  ASSERT_TRUE(by_step->seek({5, -1, 0, false}));
  EXPECT_EQ(by_step->digest(), digests[5]);
  // Without drafts the products have other sizes: from a near tie on tokens may be others.
  auto plain = make({"cuda"});
  while (!plain->finished()) ASSERT_TRUE(plain->step());
  for (std::size_t i = 0; i < plain->serving().requests().size(); ++i) {
    const Request &a = plain->serving().requests()[i], &b = by_op->serving().requests()[i];
    ASSERT_EQ(a.tokens.size(), b.tokens.size());
    const auto same = std::ranges::mismatch(a.tokens, b.tokens).in1 - a.tokens.begin();
    EXPECT_GT(same - a.prompt_tokens, 4) << a.name;
  }
}

// Steps with a draft layer run op by op: right beside ref.sim, and the same bytes with nobody
// looking.
TEST(GpuSession, ADraftLayerIsRightSeenAndUnseen) {
  DraftOptions drafts{1, {}};
  drafts.by_model = true;
  auto seen = make({"cuda"}, References::kSim, drafts);
  auto unseen = make({"cuda"}, References::kNone, drafts);
  while (!unseen->finished()) {
    for (auto& session : {seen.get(), unseen.get()}) {
      const auto ok = session->step();
      ASSERT_TRUE(ok) << ok.error().text();
    }
    for (const TapResult& result : seen->history().back().results) {
      ASSERT_NE(result.verdict, Verdict::kWrong)
          << result.tap << " of op " << result.op << ", layer " << result.layer << ": "
          << result.note;
    }
    ASSERT_EQ(seen->history().back().proposed, unseen->history().back().proposed);
    ASSERT_EQ(seen->digest(), unseen->digest()) << unseen->cursor().step;
  }
  EXPECT_FALSE(unseen->device_error());
  EXPECT_GT(unseen->serving().totals().drafted, 50);
}

// Of both ranks: right beside ref.sim, and the caches of one are those of the other.
TEST(GpuSession, RanksAreRightAndHoldTheSameCaches) {
  std::unique_ptr<Session> ranks[2] = {make({"cuda"}, References::kSim, {}, {2, 0}),
                                       make({"cuda"}, References::kSim, {}, {2, 1})};
  auto unseen = make({"cuda"}, References::kNone, {}, {2, 1});
  auto whole = make({"cuda"});
  for (int i = 0; i < 16 && !unseen->finished(); ++i) {
    for (auto& session : ranks) {
      const auto ok = session->step();
      ASSERT_TRUE(ok) << ok.error().text();
      for (const TapResult& result : session->history().back().results) {
        ASSERT_NE(result.verdict, Verdict::kWrong)
            << result.tap << " of op " << result.op << ", step " << i << ": " << result.note;
      }
    }
    const auto ok = unseen->step();
    ASSERT_TRUE(ok) << ok.error().text();
    ASSERT_TRUE(whole->step());
    ASSERT_EQ(ranks[0]->digest(), ranks[1]->digest()) << i;
    ASSERT_EQ(unseen->digest(), ranks[1]->digest()) << i;
    for (const OpTiming& t : unseen->history().back().timings) EXPECT_GT(t.microseconds, 0) << t.op;
  }
  EXPECT_FALSE(unseen->device_error());
  EXPECT_EQ(ranks[0]->parts().config.heads, whole->parts().config.heads / 2);
  // The sum of rounded parts is not the sum that is rounded: from a near tie on tokens may differ.
  for (std::size_t i = 0; i < whole->serving().requests().size(); ++i) {
    const Request &a = whole->serving().requests()[i], &b = unseen->serving().requests()[i];
    const auto same = std::ranges::mismatch(a.tokens, b.tokens).in1 - a.tokens.begin();
    EXPECT_GT(same - a.prompt_tokens, 2) << a.name;
  }
}

TEST(GpuSession, RanksMayComputePartsOfThemselvesOnTheCpu) {
  auto session = make({"cuda", "sparse_attention=cpu", "wo_b=cpu"}, References::kSim, {}, {2, 1});
  for (int i = 0; i < 8 && !session->finished(); ++i) {
    const auto ok = session->step();
    ASSERT_TRUE(ok) << ok.error().text();
    for (const TapResult& result : session->history().back().results) {
      ASSERT_NE(result.verdict, Verdict::kWrong)
          << result.tap << " of op " << result.op << ", step " << i << ": " << result.note;
    }
  }
}

TEST(GpuSession, EveryTapOfAVerificationIsRight) {
  auto session = make({"cuda"}, References::kSim, {3, {3, 0, 2, 1}});
  for (int i = 0; i < 16 && !session->finished(); ++i) {
    const auto ok = session->step();
    ASSERT_TRUE(ok) << ok.error().text();
    for (const TapResult& result : session->history().back().results) {
      ASSERT_NE(result.verdict, Verdict::kWrong)
          << result.tap << " of op " << result.op << ", step " << i << ": " << result.note;
    }
  }
  EXPECT_GT(session->serving().totals().drafted, 0);
}

// Every op that ran on the GPU says which kernels it launched, the rules of occupancy give what the
// driver does, and looking changes nothing.
TEST(GpuSession, LaunchesOfOpsAreKnown) {
  for (const char* name : {"flash", "tiny-v3.2", "tiny-llama-fp8", "tiny-gptoss"}) {
    const std::string path =
        std::string(ATTNSCOPE_SOURCE_DIR "/assets/scenarios/") + name + ".json";
    auto seen = make({"cuda"}, References::kNone, {}, {}, false, nullptr, path.c_str());
    auto unseen = make({"cuda"}, References::kNone, {}, {}, false, nullptr, path.c_str());
    TraceRecorder recorder{TraceOptions{}};
    seen->set_observer(&recorder);
    std::int64_t ops = 0, kernels = 0;
    for (int i = 0; i < 6 && !seen->finished(); ++i) {
      ASSERT_TRUE(seen->step()) << name;
      ASSERT_TRUE(unseen->step()) << name;
      ASSERT_EQ(seen->digest(), unseen->digest()) << name << ", step " << i;
      const auto shown = take_snapshot(*seen, recorder, session_info(*seen), 1);
      const StepTrace* trace = shown->trace(shown->steps.back()->step);
      ASSERT_NE(trace, nullptr);
      for (const auto& op : trace->ops) {
        if (as_op_find(op->place.op)->phase == AS_PHASE_BEFORE) continue;
        const std::string what = std::string(name) + " " + as_op_find(op->place.op)->name;
        ++ops;
        EXPECT_EQ(op->launches.unknown, "") << what;
        EXPECT_FALSE(op->launches.kernels.empty()) << what;
        for (const KernelLaunch& k : op->launches.kernels) {
          ++kernels;
          EXPECT_FALSE(k.name.empty() || k.name.starts_with("_Z")) << what << ": " << k.name;
          const auto of = occupancy(
              {.threads = k.block.count(),
               .registers = k.registers,
               .shared = k.static_shared + k.dynamic_shared},
              {static_cast<int>(op->launches.major), static_cast<int>(op->launches.minor)});
          ASSERT_TRUE(of) << what << ": " << of.error().text();
          EXPECT_EQ(of->blocks, k.at_once) << what << ": " << k.name;
        }
      }
    }
    EXPECT_GT(ops, 50) << name;
    EXPECT_GE(kernels, ops) << name;
    EXPECT_FALSE(seen->device_error()) << name;
  }
}

}  // namespace
}  // namespace attnscope::gpu_tests
