// Runs the tests and leaves without the destructors of static objects: in some builds of PyTorch,
// those of libtorch_cpu free what is not theirs when its CUDA half is not loaded beside it, and the
// process would end as aborted after every test has passed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int code = RUN_ALL_TESTS();
  std::fflush(nullptr);
  std::_Exit(code);
}
