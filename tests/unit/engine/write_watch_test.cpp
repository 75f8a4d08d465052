// Writes to memory whose pages are watched: each is let through, and said once to each watch.
#include "engine/io/write_watch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/sanitizer.h"

namespace attnscope {
namespace write_watch_test {

constexpr std::size_t kPart = 65536, kParts = 12;

struct Memory {
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(kParts * kPart + 9000, 7);
  std::uint8_t* data() { return bytes.data() + 24; }  // no page begins here
  std::size_t size() const { return bytes.size() - 100; }
};

// Parts that a watch says were written; those at the ends share pages with other memory.
std::vector<std::size_t> told(WriteWatch& watch, std::size_t parts) {
  std::vector<std::size_t> some;
  for (std::size_t part = 0; part < parts; ++part) {
    if (watch.written(part)) some.push_back(part);
  }
  return some;
}

bool tells(WriteWatch& watch, std::size_t part) {
  const auto parts = told(watch, kParts);
  return std::ranges::find(parts, part) != parts.end();
}

TEST(WriteWatch, TellsOnceOfEachWriteAndLetsItThrough) {
  Memory memory;
  WriteWatch watch(memory.data(), memory.size(), kPart);
  EXPECT_EQ(told(watch, kParts + 1).size(), kParts + 1) << "never asked for";
  EXPECT_EQ(told(watch, kParts + 1), (std::vector<std::size_t>{0, kParts}));
  memory.data()[5 * kPart] = 9;
  EXPECT_EQ(memory.data()[5 * kPart], 9);
  EXPECT_TRUE(tells(watch, 5));
  EXPECT_FALSE(tells(watch, 5));
  // The same again, and one at the end of the part.
  for (int i = 0; i < 3; ++i) {
    memory.data()[5 * kPart + (i == 1 ? kPart - 1 : 0)] ^= 1;
    EXPECT_TRUE(tells(watch, 5)) << i;
    EXPECT_FALSE(tells(watch, 5)) << i;
  }
  EXPECT_FALSE(tells(watch, 8)) << "far from all writes";
}

TEST(WriteWatch, TellsEachOfTwoWatches) {
  Memory memory;
  auto first = std::make_unique<WriteWatch>(memory.data(), memory.size(), kPart);
  WriteWatch second(memory.data(), memory.size(), kPart);
  told(*first, kParts);
  told(second, kParts);
  memory.data()[3 * kPart + 10] = 1;
  EXPECT_TRUE(tells(*first, 3));
  memory.data()[6 * kPart + 10] = 1;
  EXPECT_TRUE(tells(second, 3));
  EXPECT_FALSE(tells(second, 3));
  EXPECT_TRUE(tells(*first, 6));
  first.reset();  // the other one goes on
  memory.data()[3 * kPart + 11] = 1;
  EXPECT_TRUE(tells(second, 3));
}

// One ends and opens the pages of both: the other one is told of writes there all the same.
TEST(WriteWatch, TellsOfWritesWhereAnotherWatchOfAPartHasEnded) {
  Memory memory;
  WriteWatch whole(memory.data(), memory.size(), kPart);
  auto part = std::make_unique<WriteWatch>(memory.data() + 2 * kPart, 2 * kPart, kPart);
  told(whole, kParts);
  told(*part, 2);
  part.reset();
  memory.data()[3 * kPart + 10] = 1;
  EXPECT_TRUE(tells(whole, 3));
  EXPECT_FALSE(tells(whole, 5));
  memory.data()[3 * kPart + 11] = 1;
  EXPECT_TRUE(tells(whole, 3));
}

TEST(WriteWatch, LeavesMemoryAsItFoundIt) {
  Memory memory;
  { WriteWatch watch(memory.data(), memory.size(), kPart); }
  std::ranges::fill(memory.bytes, std::uint8_t{1});
  EXPECT_EQ(std::ranges::count(memory.bytes, 1), static_cast<std::ptrdiff_t>(memory.bytes.size()));
  // Another watch of the memory knows nothing of the writes before it.
  WriteWatch watch(memory.data(), memory.size(), kPart);
  told(watch, kParts);
  EXPECT_FALSE(tells(watch, 4));
}

// Adds one as a single access. The thread sanitizer does an atomic one within itself, where a fault
// finds it in the middle of its own work: it is not to take part in this one.
#if defined(__clang__)
__attribute__((disable_sanitizer_instrumentation))
#endif
void bump(std::uint8_t* byte) {
  __atomic_fetch_add(byte, 1, __ATOMIC_SEQ_CST);
}

// Each thread bumps its own byte of one run; the last write is told of however they meet the looks.
TEST(WriteWatch, MissesNoWriteOfAnotherThread) {
  Memory memory;
  WriteWatch watch(memory.data(), memory.size(), kPart);
  told(watch, kParts);
  constexpr int kThreads = 3, kWrites = 400;
  const auto byte_of = [&memory](int t) {
    return memory.data() + 4 * kPart + 100 * static_cast<std::size_t>(t);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&byte_of, t] {
      for (int i = 0; i < kWrites; ++i) bump(byte_of(t));
    });
  }
  std::vector<std::uint8_t> seen(kThreads);
  const auto look = [&] {
    if (!tells(watch, 4)) return;
    for (int t = 0; t < kThreads; ++t) {
      seen[static_cast<std::size_t>(t)] = std::atomic_ref(*byte_of(t)).load();
    }
  };
  for (int i = 0; i < 2000; ++i) look();
  for (std::thread& thread : threads) thread.join();
  look();
  const auto all = static_cast<std::uint8_t>(7 + kWrites);
  EXPECT_EQ(seen, std::vector<std::uint8_t>(kThreads, all));
}

TEST(WriteWatch, SaysOfMemoryWithinAPageThatItWasWritten) {
  std::vector<std::uint8_t> few(100);
  WriteWatch watch(few.data(), few.size(), kPart);
  EXPECT_TRUE(watch.written(0));
  EXPECT_TRUE(watch.written(0));
}

void expect_fault(const std::function<void()>& act) {
  // A sanitizer ends the program in its own way.
  if (kAddressSanitizer || kThreadSanitizer) {
    EXPECT_DEATH(act(), "");
  } else {
    EXPECT_EXIT(act(), testing::KilledBySignal(SIGSEGV), "");
  }
}

TEST(WriteWatchDeathTest, LeavesOtherFaultsToWhoeverCaughtThem) {
  Memory memory;
  WriteWatch watch(memory.data(), memory.size(), kPart);
  expect_fault([] { *reinterpret_cast<volatile int*>(16) = 1; });
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* other = ::mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(other, MAP_FAILED);
  expect_fault([other] { *static_cast<volatile char*>(other) = 1; });
  ::munmap(other, page);
}

TEST(WriteWatchDeathTest, ASentSignalEndsTheProgramAsBefore) {
  Memory memory;
  WriteWatch watch(memory.data(), memory.size(), kPart);
  expect_fault([] {
    ::raise(SIGSEGV);
    std::_Exit(0);
  });
}

#if defined(__x86_64__)
TEST(WriteWatchDeathTest, AJumpIntoWatchedMemoryIsNoWrite) {
  Memory memory;
  WriteWatch watch(memory.data(), memory.size(), kPart);
  expect_fault([&memory] {
    ::alarm(20);  // where it would fault for ever
    reinterpret_cast<void (*)()>(memory.data() + 2 * kPart)();
  });
}
#endif

}  // namespace write_watch_test
}  // namespace attnscope
