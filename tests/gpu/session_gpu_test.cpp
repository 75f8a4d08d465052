// Whole sessions on the GPU: the same bytes however they are stepped, graphs or not; every tap
// beside ref.sim; tokens of the CPU lane.
#include "engine/session/session.h"
#include "kernels/cuda/cuda_lane.h"
#include "tests/gpu/support.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gpu_tests {
namespace {

std::unique_ptr<Session> make(std::vector<std::string> lanes,
                              References references = References::kNone) {
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(*cuda::lane());
  registry.add(*reference::sim_lane());
  registry.add(*reference::exact_lane());
  SessionOptions options;
  options.lanes = std::move(lanes);
  options.references = references;
  options.tolerance_file = ATTNSCOPE_SOURCE_DIR "/assets/tolerances.json";
  auto session = Session::create(small_scenario(150, 40), registry, options);
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

TEST(GpuSession, SamplesTheTokensOfTheCpuLane) {
  auto gpu = make({"cuda"}), cpu = make({"cpu"});
  while (!gpu->finished()) {
    ASSERT_TRUE(gpu->step());
    ASSERT_TRUE(cpu->step());
    // From the first near tie on the two may say different things.
    if (gpu->history().back().sampled != cpu->history().back().sampled) break;
  }
  EXPECT_GT(gpu->cursor().step, 8);
}

}  // namespace
}  // namespace attnscope::gpu_tests
