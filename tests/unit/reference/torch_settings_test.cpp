// What libraries under libtorch are told.
#include "reference/torch_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace attnscope::reference {
namespace torch_settings_test {

TEST(TorchSettings, NewProcessorsGetTheKernelsOfTheirRegisters) {
  EXPECT_EQ(openblas_core({.intel = true, .family = 6, .avx2 = true, .avx512 = true}), "SkylakeX");
  EXPECT_EQ(openblas_core({.intel = true, .family = 6, .avx2 = true}), "Haswell");
  EXPECT_EQ(openblas_core({.amd = true, .family = 0x1a, .avx2 = true, .avx512 = true}), "SkylakeX");
}

TEST(TorchSettings, OthersAreLeftToOpenBlas) {
  EXPECT_EQ(openblas_core({.intel = true, .family = 6}), "");
  EXPECT_EQ(openblas_core({.amd = true, .family = 0x19, .avx2 = true, .avx512 = true}), "");
  EXPECT_EQ(openblas_core({}), "");
}

TEST(TorchSettings, AreMadeBeforeMainAndLeaveTheUsersOwn) {
  const char* own = std::getenv("OPENBLAS_THREAD_TIMEOUT");
  ASSERT_NE(own, nullptr);
  const std::string before = own;
  const std::string core = openblas_core(this_processor());
  if (!core.empty()) {
    ASSERT_NE(std::getenv("OPENBLAS_CORETYPE"), nullptr);
  }
  ASSERT_EQ(setenv("OPENBLAS_THREAD_TIMEOUT", "21", 1), 0);
  tell_libraries();
  EXPECT_STREQ(std::getenv("OPENBLAS_THREAD_TIMEOUT"), "21");
  ASSERT_EQ(setenv("OPENBLAS_THREAD_TIMEOUT", before.c_str(), 1), 0);
}

}  // namespace torch_settings_test
}  // namespace attnscope::reference
