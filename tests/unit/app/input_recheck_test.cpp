#include "engine/session/device/input_recheck.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "tests/unit/app/host_device.h"

namespace attnscope {
namespace {

// A tensor of the host and its mirror.
struct Mirrored {
  Mirrored(HostDevice& device, std::size_t bytes) : host(bytes) {
    std::iota(host.begin(), host.end(), std::uint8_t{3});
    there = static_cast<std::uint8_t*>(*device.allocate(bytes));
    std::copy(host.begin(), host.end(), there);
  }
  std::vector<std::uint8_t> host;
  std::uint8_t* there;
};

TEST(InputRecheck, ChangesTheHostOnlyWhereTheDeviceHasOtherBytes) {
  HostDevice device;
  cpu::ThreadPool pool(3);
  {
    InputRecheck recheck(device, pool.handle());
    Mirrored small(device, 7), large(device, (std::size_t{5} << 20) + 3);
    std::vector<std::uint8_t> seen;
    int told = 0;
    recheck.before_change([&] {
      ++told;
      seen = large.host;
      return Result<void>();
    });
    const auto add = [&] {
      recheck.add(small.host.data(), small.there, small.host.size());
      recheck.add(large.host.data(), large.there, large.host.size());
    };
    add();
    ASSERT_TRUE(recheck.run());
    EXPECT_EQ(told, 0);

    const std::vector<std::uint8_t> before = large.host;
    large.there[large.host.size() - 1] ^= 1;  // in the last part of those that threads compare
    add();
    ASSERT_TRUE(recheck.run());
    EXPECT_EQ(told, 1);
    EXPECT_EQ(seen, before) << "changed before somebody could look";
    EXPECT_EQ(large.host.back(), before.back() ^ 1);

    ASSERT_TRUE(recheck.run()) << "nothing was added since";
    EXPECT_EQ(told, 1);
  }
  EXPECT_EQ(device.counts.held, 2) << "the two mirrors of this test alone";
}

// Memory that the device reaches by itself is short: ordinary memory does, and as soon as there is
// some again it is that again.
TEST(InputRecheck, DoesWithOrdinaryMemory) {
  HostDevice device;
  {
    InputRecheck recheck(device, nullptr);
    Mirrored small(device, 64), large(device, 4096);
    const auto brings = [&](Mirrored& tensor) {
      std::ranges::fill(tensor.host, std::uint8_t{0});
      tensor.there[9] ^= 1;
      recheck.bring(tensor.host.data(), tensor.there, tensor.host.size());
      const auto ran = recheck.run();
      EXPECT_TRUE(ran) << ran.error().text();
      EXPECT_TRUE(std::ranges::equal(tensor.host, std::span(tensor.there, tensor.host.size())));
    };
    device.host_memory_short = true;
    brings(small);
    EXPECT_EQ(device.counts.held, 2) << "the two mirrors of this test alone";
    device.host_memory_short = false;
    brings(large);
    EXPECT_EQ(device.counts.held, 3);
    device.host_memory_short = true;
    brings(small);
    EXPECT_EQ(device.counts.held, 3) << "large enough as it is";
  }
  EXPECT_EQ(device.counts.held, 2);
}

TEST(InputRecheck, StopsWhereWhoIsToldFails) {
  HostDevice device;
  InputRecheck recheck(device, nullptr);
  Mirrored tensor(device, 64);
  const std::vector<std::uint8_t> before = tensor.host;
  recheck.before_change([] { return Result<void>(Error{AS_MISMATCH, "cannot", {}}); });
  tensor.there[5] ^= 1;
  recheck.add(tensor.host.data(), tensor.there, tensor.host.size());
  const auto ran = recheck.run();
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().message, "cannot");
  EXPECT_EQ(tensor.host, before);
}

}  // namespace
}  // namespace attnscope
