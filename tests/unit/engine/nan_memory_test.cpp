// Memory that nobody wrote to is NaN, whatever its size and whoever had it before.
#include "engine/opcase/nan_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace attnscope {
namespace nan_memory_test {

bool all_set(const NanMemory& memory, std::int64_t from, std::int64_t to) {
  const auto* bytes = static_cast<const std::uint8_t*>(memory.get());
  return std::all_of(bytes + from, bytes + to, [](std::uint8_t b) { return b == 0xff; });
}

TEST(NanMemory, IsAllOnesAndWritesStayWithWhoWrote) {
  for (const std::int64_t size :
       {0, 1, 63, 4096, (1 << 20) - 1, 1 << 20, (4 << 20) + 5, 13 << 20}) {
    SCOPED_TRACE(size);
    NanMemory first = nan_memory(size);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.get()) % 64, 0u);
    EXPECT_TRUE(all_set(first, 0, size));
    std::memset(first.get(), 0, static_cast<std::size_t>(size));
    const NanMemory second = nan_memory(size);
    ASSERT_NE(second, nullptr);
    EXPECT_TRUE(all_set(second, 0, size));
    first.reset();
    EXPECT_TRUE(all_set(nan_memory(size), 0, size));
    EXPECT_TRUE(all_set(second, 0, size));
  }
}

TEST(NanMemory, OneChangedByteLeavesItsNeighbours) {
  constexpr std::int64_t kSize = 6 << 20, kAt = (4 << 20) + 17;
  const NanMemory memory = nan_memory(kSize);
  static_cast<std::uint8_t*>(memory.get())[kAt] = 0;
  EXPECT_TRUE(all_set(memory, 0, kAt));
  EXPECT_TRUE(all_set(memory, kAt + 1, kSize));
}

}  // namespace nan_memory_test
}  // namespace attnscope
