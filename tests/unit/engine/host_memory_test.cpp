// Large tensors of a step lie in the memory that was chosen for them, as long as there is some.
#include <gtest/gtest.h>

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

}  // namespace host_memory_test
}  // namespace attnscope
