// Plugins whose tensors lie on a device, with the tests' own in the place of the GPU (its two
// processes map the same memory): every op's call gets there and back, memory is opened once, each
// fault is named and the next call goes on. With a GPU: tests/gpu/plugin_gpu_test.cpp.
#include <gtest/gtest.h>

#include "engine/plugin/plugin_lane.h"
#include "engine/session/session.h"
#include "kernels/cpu/cpu_lane.h"
#include "tests/plugin/shared_device.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/host_device.h"
#include "tests/unit/app/small_scenario.h"
#include "tests/unit/family_ops.h"

namespace attnscope {
namespace plugin_device_test {

std::string library(const std::string& fault) {
  return ATTNSCOPE_TEST_PLUGINS "/libplugin_on_device_" + fault + ".so";
}

// A residual's call of so many tokens.
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

struct Opened {
  std::shared_ptr<SharedDevice> device = std::make_shared<SharedDevice>();
  Result<std::unique_ptr<PluginLane>> lane = internal_error("not opened");
};

Opened open(const std::string& fault, bool in_process = false, double seconds = 10) {
  Opened opened;
  PluginOptions options;
  options.library = library(fault);
  options.program = ATTNSCOPE_TEST_PLUGINS "/plugin_shared_device_host";
  options.in_process = in_process;
  options.seconds_limit = seconds;
  options.stand_in = cpu::lane();
  options.open_device = [device = opened.device]() -> Result<std::shared_ptr<PluginDevice>> {
    return std::shared_ptr<PluginDevice>(device);
  };
  opened.lane = PluginLane::open(options);
  return opened;
}

struct Called {
  std::int32_t status = AS_INTERNAL;
  std::string message;
  std::vector<std::uint8_t> out;
};

// Calls residual and gives its `out`.
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

TEST(PluginDevice, AKernelOfTheDeviceIsRightAndItsMemoryIsOpenedOnce) {
  for (const auto& [library, in_process] : std::vector<std::pair<std::string, bool>>{
           {"NONE", false}, {"NONE", true}, {"VERSION_1", false}, {"VERSION_1", true}}) {
    Opened plugin = open(library, in_process);
    ASSERT_TRUE(plugin.lane) << plugin.lane.error().text();
    const Lane& lane = (*plugin.lane)->lane();
    EXPECT_STREQ(lane.name, "plugin:on_device");
    const auto right = [&](std::int64_t tokens) {
      const Called ours = call(*cpu::lane(), tokens), theirs = call(lane, tokens);
      EXPECT_EQ(theirs.status, AS_OK) << theirs.message;
      EXPECT_EQ(theirs.out, ours.out) << tokens;
    };
    for (int i = 0; i < 3; ++i) right(5);
    const int opened = plugin.device->shares;
    EXPECT_EQ(opened, in_process ? 0 : 1);
    for (int i = 0; i < 3; ++i) right(5);
    EXPECT_EQ(plugin.device->shares, opened) << "the same memory for every such call";
    right(1000);
    right(3);
    EXPECT_EQ(plugin.device->shares, in_process ? 0 : opened + 1) << "more was needed once";
    const auto timings = (*plugin.lane)->timings();
    ASSERT_EQ(timings.size(), 1u);
    EXPECT_EQ(timings[0].microseconds, SharedDevice::kMicroseconds) << "the device's clock";
    // Of calls of one size: the largest.
    EXPECT_EQ(timings[0].rows, 1000);
    EXPECT_EQ(timings[0].calls, 1);
    EXPECT_EQ(timings[0].all_calls, 8);
    EXPECT_FALSE(timings[0].pair) << "nobody else computes there";
    plugin.lane = internal_error("closed");
    EXPECT_EQ(plugin.device->held, 0);
  }
}

struct Fault {
  const char* name;
  const char* text;
};

TEST(PluginDevice, EveryFaultIsNamedAndTheNextCallGoesOn) {
  for (const Fault& fault : std::vector<Fault>{
           {"BREAKS_THE_DEVICE", "failed on the GPU: an illegal access was encountered"},
           {"LOOP", "did not return within 1 s and was ended"},
           {"WRITE_BEHIND", "wrote 2 bytes behind the end of out"},
           {"WRITE_BEFORE", "wrote 2 bytes before out"},
           {"WRITE_INPUT", "wrote to its input h (byte 6)"},
           {"RETURN_ERROR", "returned status 3: I would rather not"},
           {"CRASH", "crashed (SIGSEGV)"},
           {"TOUCH_BEYOND", "crashed (SIGSEGV)"}}) {
    SCOPED_TRACE(fault.name);
    Opened plugin = open(fault.name, false, 1);
    ASSERT_TRUE(plugin.lane) << plugin.lane.error().text();
    (*plugin.lane)->set_strict(true);
    const Lane& lane = (*plugin.lane)->lane();
    for (int i = 0; i < 2; ++i) {
      const Called called = call(lane, 5);
      EXPECT_NE(called.status, AS_OK);
      EXPECT_NE(called.message.find(fault.text), std::string::npos) << called.message;
    }
    (*plugin.lane)->set_strict(false);
    const Called stood_in = call(lane, 5);
    EXPECT_EQ(stood_in.status, AS_OK);
    EXPECT_EQ(stood_in.out, call(*cpu::lane(), 5).out);
    ASSERT_EQ((*plugin.lane)->faults().size(), 1u);
  }
}

TEST(PluginDevice, FaultsThatLeaveTheProcessAloneAreNamedInItToo) {
  for (const Fault& fault : std::vector<Fault>{
           {"BREAKS_THE_DEVICE", "failed on the GPU: an illegal access was encountered"},
           {"WRITE_BEHIND", "wrote 2 bytes behind the end of out"},
           {"WRITE_INPUT", "wrote to its input h (byte 6)"},
           {"RETURN_ERROR", "returned status 3: I would rather not"}}) {
    Opened plugin = open(fault.name, true);
    ASSERT_TRUE(plugin.lane);
    (*plugin.lane)->set_strict(true);
    const Called called = call((*plugin.lane)->lane(), 5);
    EXPECT_NE(called.message.find(fault.text), std::string::npos) << called.message;
  }
}

TEST(PluginDevice, WhatCannotBeLoadedIsRefusedByName) {
  const auto refused = [](const char* fault, const char* text) {
    Opened plugin = open(fault);
    ASSERT_FALSE(plugin.lane) << fault;
    EXPECT_EQ(plugin.lane.error().code, AS_BAD_INPUT);
    EXPECT_NE(plugin.lane.error().message.find(text), std::string::npos)
        << plugin.lane.error().message;
  };
  refused("OTHER_LIST", "built for version 7 of the list of ops on the GPU");
  refused("NOT_IN_LANE", "attnscope_device() names sample, which its lane does not have");

  auto device = std::make_shared<SharedDevice>();
  device->unshareable = true;
  PluginOptions options;
  options.library = library("NONE");
  options.program = ATTNSCOPE_TEST_PLUGINS "/plugin_shared_device_host";
  options.open_device = [device]() -> Result<std::shared_ptr<PluginDevice>> {
    return std::shared_ptr<PluginDevice>(device);
  };
  const auto alone = PluginLane::open(options);
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().code, AS_NO_ENVIRONMENT);
  EXPECT_NE(alone.error().text().find("cannot have the GPU's memory: failed on the GPU: a handle"),
            std::string::npos)
      << alone.error().text();
  EXPECT_NE(alone.error().text().find("--in-process"), std::string::npos);
}

class PluginWithoutGpu : public CliTest {};

TEST_F(PluginWithoutGpu, IsRefusedInOneSentence) {
  if (open_cuda_plugin_device()) GTEST_SKIP() << "skipped: there is a GPU";
  const Outcome out = run({"lanes", "--plugin", library("NONE")});
  EXPECT_EQ(out.code, 4);
  EXPECT_NE(out.err.find("its residual takes tensors on the GPU"), std::string::npos) << out.err;
}

// The op in the CPU lane, on tensors that must all be marked as lying on the device.
as_op_id current = AS_OP_SCHEDULE;
std::int32_t on_device(const void* params, const as_call* call, as_error* error) {
  const CaseOp op = *find_case_op(current);
  std::vector<std::uint64_t> own((op.params_size + 7) / 8);
  std::memcpy(own.data(), params, op.params_size);
  const auto take = [&](std::size_t offset) {
    as_tensor& t = tensor_at(own.data(), offset);
    const bool there = t.data == nullptr || t.device == 1;
    t.device = 0;
    return there;
  };
  bool all = call->stream != nullptr;
  for (const as_tap_info& tap : op.taps) all = take(tap.offset) && all;
  for (const as_param_info& field : op.fields) {
    if (field.kind == AS_PARAM_ROPE) all = take(field.offset) && all;
  }
  if (!all) return fail(error, AS_INTERNAL, "a tensor lies elsewhere");
  return cpu::lane()->ops[current](own.data(), call, error);
}

TEST(PluginDevice, EveryOpsCallGetsThereAndBack) {
  SessionOptions options;
  options.references = References::kNone;
  auto session = Session::create(small_scenario(), host_device::lanes(), options);
  ASSERT_TRUE(session) << session.error().text();
  DeviceImage image(std::make_shared<SharedDevice>());
  std::set<as_op_id> seen;
  for (int step = 0; step < 3; ++step) {
    while ((*session)->cursor().step == step) {
      ASSERT_TRUE((*session)->op());
      const OpParams& params = (*session)->last_params();
      current = params.op();
      if (cpu::lane()->ops[current] == nullptr) continue;
      seen.insert(current);
      const CaseOp op = *find_case_op(current);
      const auto kept = keep_case(op, params.data(), {});
      ASSERT_TRUE(kept);
      auto here = CaseCall::make(*kept);
      as_error error{};
      ASSERT_TRUE(here);
      ASSERT_EQ(cpu::lane()->ops[current](here->params(), nullptr, &error), AS_OK);
      image.clear();
      auto there = CaseCall::make(*kept, image);
      ASSERT_TRUE(there);
      const auto time = image.run(on_device, *there, nullptr);
      ASSERT_TRUE(time) << op.name << ": " << time.error().message;
      const auto wrong = image.download();
      ASSERT_TRUE(wrong);
      EXPECT_EQ(*wrong, "") << op.name;
      EXPECT_EQ(strays(*there, *kept), "") << op.name;
      const auto a = keep_case(op, here->params(), {}), b = keep_case(op, there->params(), {});
      ASSERT_TRUE(a && b);
      for (const auto& [name, t] : a->tensors) {
        EXPECT_EQ(t.bytes, b->tensors.at(name).bytes) << op.name << " " << name;
      }
      for (const auto& [name, cache] : a->caches) {
        EXPECT_EQ(cache.rows, b->caches.at(name).rows) << op.name << " " << name;
      }
    }
  }
  EXPECT_EQ(seen.size(), count_of_deepseek_v4() - 2) << "all but the host's two";
}

}  // namespace plugin_device_test
}  // namespace attnscope
