// Memory that rests in a file: the same bytes, and less of the machine's memory.
#include "engine/io/resting_memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>

#include "tests/unit/engine/resting_place.h"

namespace attnscope {
namespace resting_memory_test {

using RestingBytes = RestingTest;

constexpr std::size_t kMany = std::size_t{32} << 20;

std::uint8_t byte_at(std::size_t i) { return static_cast<std::uint8_t>(i * 31 + (i >> 12)); }

void fill(const RestingMemory& memory) {
  for (std::size_t i = 0; i < memory.bytes(); ++i) memory.data()[i] = byte_at(i);
}

std::size_t differing(const RestingMemory& memory) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < memory.bytes(); ++i) n += memory.data()[i] != byte_at(i) ? 1 : 0;
  return n;
}

// Bytes of this process that lie in the machine's memory.
std::int64_t resident() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return -1;
}

TEST_F(RestingBytes, GivesMemoryBackAndKeepsItsBytes) {
  RestingMemory memory(kMany);
  EXPECT_EQ(memory.data()[kMany - 1], 0);
  fill(memory);
  const std::int64_t before = resident(), in_files = resting_bytes();
  ASSERT_TRUE(memory.rest(0, kMany));
  EXPECT_EQ(resting_bytes(), in_files + static_cast<std::int64_t>(kMany));
  EXPECT_LT(resident(), before - static_cast<std::int64_t>(kMany) * 3 / 4);
  EXPECT_EQ(differing(memory), 0u);
}

TEST_F(RestingBytes, WhatIsWrittenAfterwardsStaysAlsoWhenItRestsAgain) {
  RestingMemory memory(kMany / 8);
  fill(memory);
  ASSERT_TRUE(memory.rest(0, memory.bytes()));
  for (std::size_t i = 100; i < memory.bytes(); i += 70000) memory.data()[i] ^= 0xFF;
  const auto right = [&] {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < memory.bytes(); ++i) {
      const bool other = i >= 100 && (i - 100) % 70000 == 0;
      wrong += memory.data()[i] != (byte_at(i) ^ (other ? 0xFF : 0)) ? 1 : 0;
    }
    return wrong;
  };
  EXPECT_EQ(right(), 0u);
  const std::int64_t in_files = resting_bytes();
  ASSERT_TRUE(memory.rest(5000, memory.bytes() - 3000));
  EXPECT_EQ(resting_bytes(), in_files) << "counted twice";
  EXPECT_EQ(right(), 0u);
}

TEST_F(RestingBytes, ManyShareAFileAndDoNotDisturbEachOther) {
  const auto file = std::make_shared<RestingFile>();
  auto first = std::make_unique<RestingMemory>(300000, file);
  RestingMemory second(500000, file);
  fill(*first);
  fill(second);
  ASSERT_TRUE(first->rest(0, first->bytes()));
  ASSERT_TRUE(second.rest(0, second.bytes()));
  EXPECT_EQ(differing(*first), 0u);
  first.reset();
  EXPECT_EQ(differing(second), 0u);
  RestingMemory third(300000, file);
  fill(third);
  ASSERT_TRUE(third.rest(0, third.bytes()));
  EXPECT_EQ(differing(third), 0u);
  EXPECT_EQ(differing(second), 0u);
}

TEST(RestingMemory, PartsOfAPageAndNothingStayWhereTheyAre) {
  RestingMemory memory(10000);
  fill(memory);
  EXPECT_TRUE(memory.rest(1, 4095));
  EXPECT_TRUE(memory.rest(9000, 8000));
  EXPECT_EQ(differing(memory), 0u);
}

TEST(RestingMemory, WithoutAFileAllStays) {
  for (const char* folder : {"/nonexistent/attnscope", "/dev/shm"}) {
    const OtherFolder other(folder);
    RestingMemory memory(100000);
    fill(memory);
    EXPECT_FALSE(memory.rest(0, memory.bytes())) << folder;
    EXPECT_EQ(differing(memory), 0u) << folder;
  }
}

// A system whose /var/tmp is memory has another place, or says that it has none.
TEST(RestingMemory, TestsFindAFolderWhereTheFirstOnesAreMemory) {
  const std::string usual = resting_folder();
  const OtherFolder memory("/dev/shm");
  EXPECT_FALSE(can_rest_in("/dev/shm"));
  const std::string found = resting_folder();
  EXPECT_NE(found, "/dev/shm");
  EXPECT_EQ(found.empty(), usual.empty());
  if (found.empty()) GTEST_SKIP() << kNoRestingFolder;
  EXPECT_TRUE(can_rest_in(found));
}

}  // namespace resting_memory_test
}  // namespace attnscope
