// Sessions whose tensors lie on a device: the same bytes as on the host however they are stepped,
// nothing that travels between ops, and the CPU lane when the device fails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/session/session.h"
#include "engine/session/session_config.h"
#include "tests/unit/app/host_device.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace device_session_test {

struct Made {
  std::shared_ptr<HostDevice> device = std::make_shared<HostDevice>();
  std::unique_ptr<Session> session;
};

Made make(std::vector<std::string> lanes = {"cuda"}, References references = References::kNone,
          std::int64_t rewind_every = 3, const Scenario& scenario = small_scenario(),
          bool serial = false) {
  Made made;
  SessionOptions options;
  options.references = references;
  options.lanes = std::move(lanes);
  options.threads = 2;
  options.rewind_every = rewind_every;
  options.device = made.device;
  options.serial = serial;
  auto session = Session::create(scenario, host_device::lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  made.session = std::move(*session);
  return made;
}

void step(Session& session) {
  const auto ok = session.step();
  ASSERT_TRUE(ok) << ok.error().text();
}

// Both sessions step by step: tokens, caches and results agree after each.
void expect_equal_steps(Session& a, Session& b) {
  while (!a.finished()) {
    ASSERT_NO_FATAL_FAILURE(step(a));
    ASSERT_NO_FATAL_FAILURE(step(b));
    ASSERT_EQ(a.history().back().sampled, b.history().back().sampled) << a.cursor().step;
    ASSERT_EQ(a.digest(), b.digest()) << "step " << a.cursor().step;
    ASSERT_EQ(a.history().back().results.size(), b.history().back().results.size());
  }
  EXPECT_TRUE(b.finished());
}

TEST(DeviceSession, OnOneStreamTheBytesAreTheSame) {
  auto branches = make();
  auto serial = make({"cuda"}, References::kNone, 3, small_scenario(), true);
  expect_equal_steps(*branches.session, *serial.session);
  EXPECT_GT(branches.device->counts.orders, 0);
  EXPECT_EQ(serial.device->counts.orders, 0);
  EXPECT_GT(serial.device->counts.replays, 0);
}

TEST(DeviceSession, StepsGiveTheBytesOfTheCpuLane) {
  auto cpu = make({"cpu"});
  auto gpu = make();
  expect_equal_steps(*cpu.session, *gpu.session);
  EXPECT_GT(gpu.device->counts.replays, 0);
  EXPECT_FALSE(gpu.session->device_error());
  gpu.session.reset();
  EXPECT_EQ(gpu.device->counts.held, 0);
}

// Events are in the graph of a step only where its times are wanted.
TEST(DeviceSession, StepsAreTimedWhereThatIsWanted) {
  auto cpu = make({"cpu"});
  auto gpu = make();
  int timed_steps = 0;
  while (!cpu.session->finished()) {
    const bool wanted = gpu.session->cursor().step % 2 == 1;
    gpu.session->measure_ops(wanted);
    const std::int64_t replays = gpu.device->counts.replays, marks = gpu.device->counts.marks;
    ASSERT_NO_FATAL_FAILURE(step(*gpu.session));
    ASSERT_NO_FATAL_FAILURE(step(*cpu.session));
    ASSERT_EQ(gpu.session->digest(), cpu.session->digest());
    if (gpu.device->counts.replays == replays) continue;
    timed_steps += wanted;
    EXPECT_EQ(gpu.device->counts.marks > marks, wanted);
    std::set<int> streams;
    std::set<double> starts;
    double first = OpTiming::kNotMeasured;
    for (const OpTiming& t : gpu.session->history().back().timings) {
      if (t.op == AS_OP_SCHEDULE || t.op == AS_OP_BLOCK_TABLES) continue;
      EXPECT_EQ(t.microseconds, wanted ? 7.0 : OpTiming::kNotMeasured) << t.op;
      if (!wanted) {
        EXPECT_EQ(t.start, OpTiming::kNotMeasured) << t.op;
        continue;
      }
      // Two events an op, each 7 microseconds behind the one before it.
      if (starts.empty()) first = t.start;
      EXPECT_NEAR(std::remainder(t.start - first, 14.0), 0, 1e-6) << t.op;
      EXPECT_TRUE(starts.insert(t.start).second) << t.op;
      streams.insert(t.stream);
    }
    EXPECT_GE(first, wanted ? 0 : OpTiming::kNotMeasured);
    EXPECT_EQ(streams.size(), wanted ? gpu.session->parts().graph->branches.size() : 0);
  }
  EXPECT_GT(timed_steps, 0);
}

// Slots and lists of a whole step are made on the device, and are those that the host makes.
struct ListsOf {
  const char *name, *preset, *profile;
};
void PrintTo(const ListsOf& of, std::ostream* out) { *out << of.name; }
class DeviceLists : public ::testing::TestWithParam<ListsOf> {};

INSTANTIATE_TEST_SUITE_P(
    Presets, DeviceLists,
    ::testing::Values(ListsOf{"Windows", "tiny", "vllm"}, ListsOf{"Chunks", "tiny-llama4", "vllm"},
                      ListsOf{"Plans", "tiny", "vllm,attention_plan=flashmla,multiprocessors=16"},
                      ListsOf{"OwnPlans", "tiny", "vllm,attention_plan=own"}),
    [](const auto& p) { return p.param.name; });

TEST_P(DeviceLists, OfWholeStepsAreThoseOfTheHost) {
  Scenario scenario = small_scenario();
  scenario.model = *preset(GetParam().preset);
  scenario.model.switches = *profile_switches(GetParam().profile);
  std::vector<std::string> lists_of_host = {"cuda"};
  for (const as_op_id op : {AS_OP_SLOT_MAPPING, AS_OP_SWA_INDEX, AS_OP_C128_INDEX,
                            AS_OP_LOCAL_BATCH, AS_OP_ATTENTION_PLAN}) {
    const std::string choice = fmt::format("{}=cpu", as_op_find(op)->name);
    if (check_lane_ops({&choice, 1}, scenario)) lists_of_host.push_back(choice);
  }
  ASSERT_GE(lists_of_host.size(), 3u);
  const auto of = [&](std::vector<std::string> lanes) {
    return make(std::move(lanes), References::kNone, 3, scenario);
  };
  auto gpu = of({"cuda"});
  auto mixed = of(lists_of_host);
  auto cpu = of({"cpu"});
  while (!cpu.session->finished()) {
    for (Session* session : {gpu.session.get(), mixed.session.get(), cpu.session.get()}) {
      ASSERT_NO_FATAL_FAILURE(step(*session));
    }
    const StepMetadata& wanted = cpu.session->metadata();
    for (const Session* session : {gpu.session.get(), mixed.session.get()}) {
      const StepMetadata& m = session->metadata();
      ASSERT_EQ(m.slots, wanted.slots);
      ASSERT_EQ(m.own.size(), wanted.own.size());
      for (std::size_t i = 0; i < m.own.size(); ++i) {
        ASSERT_EQ(m.own[i].numbers, wanted.own[i].numbers) << m.own[i].name;
        ASSERT_EQ(m.own[i].slots, wanted.own[i].slots) << m.own[i].name;
      }
      ASSERT_EQ(session->history().back().selective, cpu.session->history().back().selective);
      const auto &a = session->history().back().results, &b = cpu.session->history().back().results;
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].op, b[i].op) << i;
        ASSERT_EQ(a[i].layer, b[i].layer) << i;
        ASSERT_EQ(a[i].step, b[i].step) << i;
        ASSERT_EQ(a[i].tap, b[i].tap) << i;
        // Rows of caches are bytes where nobody looks.
        const auto phase = as_op_find(a[i].op)->phase;
        if (phase == AS_PHASE_BEFORE || a[i].op == AS_OP_INDEXER_LOGITS) {
          ASSERT_EQ(a[i].shape, b[i].shape) << a[i].tap;
        }
      }
    }
  }
  EXPECT_GT(gpu.device->counts.list_calls, 0);
  EXPECT_EQ(mixed.device->counts.list_calls, 0);
}

TEST(DeviceSession, DecodeStepsCopyTokensInAndOutAndAllocateNothing) {
  auto gpu = make({"cuda"}, References::kNone, 0, small_scenario(60, 40));
  while (!gpu.session->decoding()) ASSERT_NO_FATAL_FAILURE(step(*gpu.session));
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(step(*gpu.session));
  for (int i = 0; i < 10; ++i) {
    const HostDevice::Counts before = gpu.device->counts;
    ASSERT_NO_FATAL_FAILURE(step(*gpu.session));
    const HostDevice::Counts after = gpu.device->counts;
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.replays, before.replays + 1);
    EXPECT_EQ(after.downloads, before.downloads + 1);  // tokens, slots and lists
    // One for all that the host knows, and blocks that the step took and poisoned.
    EXPECT_GE(after.uploads, before.uploads + 1);
    EXPECT_LE(after.uploads, before.uploads + 1 + 3 * 8);
  }
}

TEST(DeviceSession, OpsLayersAndStepsArriveAtTheSamePlace) {
  auto by_step = make(), by_op = make(), by_layer = make();
  while (!by_step.session->finished()) {
    ASSERT_NO_FATAL_FAILURE(step(*by_step.session));
    const std::int64_t to = by_step.session->cursor().step;
    while (by_op.session->cursor().step < to) ASSERT_TRUE(by_op.session->op());
    while (by_layer.session->cursor().step < to) ASSERT_TRUE(by_layer.session->layer());
    ASSERT_EQ(by_op.session->digest(), by_step.session->digest()) << to;
    ASSERT_EQ(by_layer.session->digest(), by_step.session->digest()) << to;
  }
}

TEST(DeviceSession, EveryTapIsRightBesideTheReferences) {
  if (host_device::lanes().find("ref.sim") == nullptr) GTEST_SKIP() << "skipped: no references";
  for (const std::vector<std::string>& lanes :
       {std::vector<std::string>{"cuda"},
        {"cuda", "sparse_attention=cpu", "compress_insert=cpu", "q_b_proj=cpu"},
        {"cpu", "sparse_attention=cuda", "q_rope_kv_insert=cuda", "indexer_topk=cuda"}}) {
    auto cpu = make({"cpu"}, References::kSim);
    auto gpu = make(lanes, References::kSim);
    expect_equal_steps(*cpu.session, *gpu.session);
    for (const StepRecord& record : gpu.session->history()) {
      for (const TapResult& result : record.results) {
        ASSERT_NE(result.verdict, Verdict::kWrong)
            << result.tap << " of op " << result.op << ", step " << record.step << ": "
            << result.note;
      }
    }
  }
}

TEST(DeviceSession, GoingBackReplaysToTheSameBytes) {
  auto gpu = make();
  std::vector<std::uint64_t> digests;
  while (!gpu.session->finished()) {
    digests.push_back(gpu.session->digest());
    ASSERT_NO_FATAL_FAILURE(step(*gpu.session));
  }
  for (const std::int64_t to : {7, 2, 5, 0}) {
    ASSERT_TRUE(gpu.session->seek({to, -1, 0, false}));
    EXPECT_EQ(gpu.session->digest(), digests[static_cast<std::size_t>(to)]) << to;
  }
  // Into a step, back by one op, and on to its end.
  ASSERT_TRUE(gpu.session->seek({6, 1, 4, false}));
  ASSERT_TRUE(gpu.session->op_back());
  ASSERT_NO_FATAL_FAILURE(step(*gpu.session));
  EXPECT_EQ(gpu.session->digest(), digests[7]);
}

TEST(DeviceSession, LanesChangeOnTheWay) {
  auto gpu = make({"cpu"});
  auto cpu = make({"cpu"});
  for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(step(*gpu.session));
  const LaneRegistry lanes = host_device::lanes();
  ASSERT_TRUE(gpu.session->change_lanes(lanes, {"cuda"}, 2));
  for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(step(*gpu.session));
  ASSERT_TRUE(gpu.session->change_lanes(lanes, {"cpu"}, 5));
  ASSERT_NO_FATAL_FAILURE(step(*gpu.session));
  while (cpu.session->cursor().step < gpu.session->cursor().step) step(*cpu.session);
  EXPECT_EQ(gpu.session->digest(), cpu.session->digest());
}

TEST(DeviceSession, GoesOnInTheCpuLaneWhenTheDeviceFails) {
  auto cpu = make({"cpu"});
  std::vector<std::uint64_t> digests;
  while (!cpu.session->finished()) {
    ASSERT_NO_FATAL_FAILURE(step(*cpu.session));
    digests.push_back(cpu.session->digest());
  }
  for (const std::int64_t calls : {0, 1, 50, 200, 333}) {
    auto gpu = make();
    gpu.device->fail_after = calls;
    std::size_t i = 0;
    while (!gpu.session->finished()) {
      ASSERT_NO_FATAL_FAILURE(step(*gpu.session));
      ASSERT_EQ(gpu.session->digest(), digests[i++]) << calls << " calls, step " << i;
    }
    ASSERT_TRUE(gpu.session->device_error()) << calls;
    EXPECT_NE(gpu.session->device_error()->message.find("fell off the bus"), std::string::npos);
    EXPECT_NE(gpu.session->device_error()->message.find("lane cuda"), std::string::npos);
    EXPECT_EQ(gpu.session->lanes().description(), "cpu");
    EXPECT_EQ(gpu.session->history().size(), digests.size());
  }
}

TEST(DeviceSession, GoesOnInTheCpuLaneWhereTheDeviceHasTooLittleMemory) {
  auto cpu = make({"cpu"});
  for (const std::int64_t bytes :
       {std::int64_t{100}, std::int64_t{1} << 20, std::int64_t{20} << 20, std::int64_t{60} << 20}) {
    auto gpu = make();
    gpu.device->memory_left = bytes;
    for (int i = 0; i < 6; ++i) ASSERT_NO_FATAL_FAILURE(step(*gpu.session));
    while (cpu.session->cursor().step < 6) ASSERT_NO_FATAL_FAILURE(step(*cpu.session));
    EXPECT_EQ(gpu.session->digest(), cpu.session->digest()) << bytes;
    if (bytes < (1 << 20)) {
      ASSERT_TRUE(gpu.session->device_error());
      EXPECT_NE(gpu.session->device_error()->message.find("out of memory"), std::string::npos);
    }
  }
}

}  // namespace device_session_test
}  // namespace attnscope
