// Plugins whose tensors lie on the GPU: right and timed, in a process of their own and in ours;
// each fault there is named, ours computes on. The protocol without a GPU:
// tests/unit/app/plugin_device_test.cpp.
#include <set>

#include "engine/plugin/plugin_lane.h"
#include "engine/session/session.h"
#include "kernels/cuda/cuda_lane.h"
#include "tests/gpu/support.h"
#include "tests/unit/app/small_scenario.h"
#include "tests/unit/family_ops.h"

namespace attnscope::gpu_tests {
namespace {

Result<std::unique_ptr<PluginLane>> open(const std::string& name, bool in_process = false,
                                         double seconds = 30) {
  PluginOptions options;
  options.library = ATTNSCOPE_TEST_PLUGINS "/libplugin_" + name + ".so";
  options.program = ATTNSCOPE_PLUGIN_HOST;
  options.in_process = in_process;
  options.seconds_limit = seconds;
  options.stand_in = cpu::lane();
  options.beside_on_device = cuda::lane();
  return PluginLane::open(options);
}

std::unique_ptr<Session> session(std::vector<std::string> lanes, const Lane* plugin = nullptr,
                                 References references = References::kNone) {
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(*cuda::lane());
  registry.add(*reference::sim_lane());
  registry.add(*reference::exact_lane());
  if (plugin != nullptr) registry.add(*plugin);
  SessionOptions options;
  options.lanes = std::move(lanes);
  options.references = references;
  options.tolerance_file = ATTNSCOPE_SOURCE_DIR "/assets/tolerances.json";
  auto made = Session::create(small_scenario(), registry, options);
  EXPECT_TRUE(made) << made.error().text();
  return std::move(*made);
}

// A residual call of so many tokens.
OpCase residual_case(std::int64_t tokens) {
  OpCase kept;
  kept.op = *find_case_op(AS_OP_RESIDUAL);
  for (const char* name : {"h", "y", "out"}) {
    StoredTensor t;
    t.dtype = AS_BF16;
    t.shape = {tokens, 512};
    t.bytes.resize(static_cast<std::size_t>(tokens) * 1024);
    for (std::size_t i = 0; i < t.bytes.size(); ++i) {
      t.bytes[i] = static_cast<std::uint8_t>(i % 2 == 0 ? i * 7 + *name : 0x3f + *name % 2);
    }
    kept.tensors[name] = std::move(t);
  }
  return kept;
}

struct Called {
  std::int32_t status = AS_INTERNAL;
  std::string message;
  std::vector<std::uint8_t> out;
};

Called call(const Lane& lane, std::int64_t tokens) {
  Called called;
  auto layout = CaseCall::make(residual_case(tokens));
  EXPECT_TRUE(layout);
  as_call context{};
  context.struct_size = sizeof(context);
  as_error error{};
  called.status = lane.ops[AS_OP_RESIDUAL](layout->params(), &context, &error);
  called.message = error.message;
  auto after = keep_case(layout->op(), layout->params(), {});
  EXPECT_TRUE(after);
  called.out = after->tensors["out"].bytes;
  return called;
}

TEST(GpuPlugin, KernelsOnTheGpuAreRightAndTimedBesideOurs) {
  for (const char* name : {"example_cuda", "gpu_NONE", "gpu_DEFAULT_STREAM"}) {
    for (const bool in_process : {false, true}) {
      SCOPED_TRACE(std::string(name) + (in_process ? " in our process" : ""));
      auto plugin = open(name, in_process);
      ASSERT_TRUE(plugin) << plugin.error().text();
      (*plugin)->set_strict(true);
      // More than the memory of the call before holds, then less again.
      for (const std::int64_t tokens : {5, 5, 1, 3000, 3000, 9000, 2}) {
        const Called theirs = call((*plugin)->lane(), tokens);
        ASSERT_EQ(theirs.status, AS_OK) << theirs.message;
        EXPECT_EQ(theirs.out, call(*cpu::lane(), tokens).out) << tokens;
      }
      const auto timings = (*plugin)->timings();
      ASSERT_EQ(timings.size(), 1u);
      EXPECT_EQ(timings[0].all_calls, 7);
      EXPECT_EQ(timings[0].rows, 9000);
      EXPECT_EQ(timings[0].calls, 1);
      EXPECT_GT(timings[0].microseconds, 0);
      ASSERT_TRUE(timings[0].pair);
      EXPECT_STREQ(timings[0].pair->lane, "cuda");
      EXPECT_GT(timings[0].pair->other, 0);
    }
  }
}

TEST(GpuPlugin, EveryFaultIsNamedAndOurGpuGoesOn) {
  struct Fault {
    const char* name;
    const char* text;
  };
  auto ours = session({"cuda"});
  for (const Fault& fault :
       std::vector<Fault>{{"ILLEGAL_ADDRESS", "cudaErrorIllegalAddress"},
                          {"ENDLESS", "did not return within 3 s and was ended"},
                          {"WRITE_BEHIND", "wrote 2 bytes behind the end of out"},
                          {"WRITE_BEFORE", "wrote 2 bytes before out"},
                          {"WRITE_INPUT", "wrote to its input h (byte "},
                          {"BAD_LAUNCH", "cudaErrorInvalid"},
                          {"FROM_THE_HOST", "wrote out, which lies on the GPU, from the host"},
                          {"CRASH", "crashed (SIGSEGV)"}}) {
    SCOPED_TRACE(fault.name);
    auto plugin = open(std::string("gpu_") + fault.name, false, 3);
    ASSERT_TRUE(plugin) << plugin.error().text();
    (*plugin)->set_strict(true);
    for (int i = 0; i < 2; ++i) {
      const Called called = call((*plugin)->lane(), 40);
      EXPECT_NE(called.status, AS_OK);
      EXPECT_NE(called.message.find(fault.text), std::string::npos) << called.message;
    }
    (*plugin)->set_strict(false);
    EXPECT_EQ(call((*plugin)->lane(), 40).out, call(*cpu::lane(), 40).out);
    const auto ok = ours->op();
    ASSERT_TRUE(ok) << ok.error().text();
    EXPECT_FALSE(ours->device_error());
  }
}

TEST(GpuPlugin, ASessionOnTheGpuGoesOnWithout) {
  auto plain = session({"cuda"});
  auto plugin = open("gpu_ILLEGAL_ADDRESS");
  ASSERT_TRUE(plugin) << plugin.error().text();
  auto mixed = session({"cuda", "residual=plugin:faulty_cuda"}, &(*plugin)->lane());
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(plain->step());
    const auto ok = mixed->step();
    ASSERT_TRUE(ok) << ok.error().text();
    EXPECT_EQ(mixed->digest(), plain->digest()) << "step " << i;
  }
  EXPECT_FALSE(mixed->device_error());
  ASSERT_EQ((*plugin)->faults().size(), 1u);
  EXPECT_NE((*plugin)->faults()[0].text().find("residual failed on the GPU"), std::string::npos);
}

TEST(GpuPlugin, ASessionWithTheExampleIsRight) {
  auto plugin = open("example_cuda");
  ASSERT_TRUE(plugin) << plugin.error().text();
  auto mixed = session({"cuda", "residual=plugin:mine_cuda"}, &(*plugin)->lane(), References::kSim);
  for (int i = 0; i < 6; ++i) {
    const auto ok = mixed->step();
    ASSERT_TRUE(ok) << ok.error().text();
    for (const TapResult& result : mixed->history().back().results) {
      ASSERT_NE(result.verdict, Verdict::kWrong) << result.tap << ": " << result.note;
    }
  }
  EXPECT_FALSE(mixed->device_error());
  EXPECT_TRUE((*plugin)->faults().empty());
}

TEST(GpuPlugin, OurKernelsTakeEveryOpsCallAsAPluginGetsIt) {
  auto device = open_cuda_plugin_device();
  ASSERT_TRUE(device) << device.error().text();
  DeviceImage image(*device);
  auto ran = session({"cpu"});
  std::set<std::int32_t> seen;
  while (ran->cursor().step < 3) {
    ASSERT_TRUE(ran->op());
    const OpParams& params = ran->last_params();
    if (cuda::lane()->ops[params.op()] == nullptr) continue;
    seen.insert(params.op());
    const CaseOp op = *find_case_op(params.op());
    const auto kept = keep_case(op, params.data(), {});
    ASSERT_TRUE(kept);
    image.clear();
    auto there = CaseCall::make(*kept, image);
    ASSERT_TRUE(there);
    const auto time = image.run(cuda::lane()->ops[params.op()], *there, nullptr);
    ASSERT_TRUE(time) << op.name << ": " << time.error().message;
    EXPECT_GT(*time, 0) << op.name;
    const auto wrong = image.download();
    ASSERT_TRUE(wrong) << wrong.error().text();
    EXPECT_EQ(*wrong, "") << op.name;
    EXPECT_EQ(strays(*there, *kept), "") << op.name;
  }
  EXPECT_EQ(seen.size(), count_of_deepseek_v4() - 2);
}

}  // namespace
}  // namespace attnscope::gpu_tests
