// Large tensors of a step lie in the memory that was chosen for them, as long as there is some.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "engine/session/step/frame.h"

namespace attnscope {
namespace host_memory_test {

int allocated = 0, released = 0;
bool empty = false;

struct Chosen {
  Chosen() {
    allocated = released = 0;
    empty = false;
    use_host_memory({[](std::size_t bytes) -> void* {
                       if (empty) return nullptr;
                       ++allocated;
                       return std::malloc(bytes);
                     },
                     [](void* memory) {
                       ++released;
                       std::free(memory);
                     }});
  }
  ~Chosen() { use_host_memory({nullptr, nullptr}); }
};

TEST(HostMemory, HoldsLargeTensorsUntilTheyAreGone) {
  const Chosen chosen;
  {
    Scratch small, large;
    small.make(AS_BF16, {4, 64});
    EXPECT_EQ(allocated, 0);
    large.make(AS_BF16, {1024, 1024});
    EXPECT_EQ(allocated, 1);
    large.make(AS_BF16, {512, 1024});  // fits
    EXPECT_EQ(allocated, 1);
    large.make(AS_BF16, {2048, 1024});
    EXPECT_EQ(allocated, 2);
    EXPECT_EQ(released, 1);
  }
  EXPECT_EQ(released, 2);
}

TEST(HostMemory, IsNotWaitedForWhereThereIsNone) {
  const Chosen chosen;
  empty = true;
  Scratch large;
  const as_tensor t = large.make(AS_U8, {1 << 21});
  ASSERT_NE(t.data, nullptr);
  static_cast<char*>(t.data)[(1 << 21) - 1] = 1;
  EXPECT_EQ(allocated, 0);
}

TEST(ScratchMemory, OfALongPromptGoesSomeStepsBehindIt) {
  Scratch scratch;
  const as_tensor large = scratch.make(AS_F32, {512, 1024});
  EXPECT_EQ(scratch.make(AS_F32, {300, 1024}).data, large.data) << "a shorter step";
  EXPECT_FALSE(scratch.let_go_for(AS_F32, std::array<std::int64_t, 2>{1, 1024}))
      << "one short step between long ones";
  int steps = 0;
  for (; steps < 100 && !scratch.let_go_for(AS_F32, std::array<std::int64_t, 2>{1, 1024});
       ++steps) {
    EXPECT_EQ(scratch.make(AS_F32, {1, 1024}).data, large.data);
  }
  EXPECT_GT(steps, 1);
  EXPECT_LT(steps, 100);
  scratch.make(AS_F32, {1, 1024});
  EXPECT_TRUE(scratch.let_go_for(AS_F32, std::array<std::int64_t, 2>{512, 1024})) << "it is small";
}

TEST(ScratchMemory, OfADriverStays) {
  const Chosen chosen;
  Scratch scratch;
  const as_tensor large = scratch.make(AS_F32, {512, 1024});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(scratch.make(AS_F32, {1, 1024}).data, large.data);
  EXPECT_EQ(allocated, 1);
}

}  // namespace host_memory_test
}  // namespace attnscope
