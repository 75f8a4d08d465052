// Names of kernels as panels and tables show them.
#include "kernels/params/kernel_launch.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace kernel_launch_test {

TEST(KernelName, LeavesOutNamespacesResultAndParameters) {
  // void attnscope::cuda::gather<64l>(float*)
  EXPECT_EQ(kernel_name("_ZN9attnscope4cuda6gatherILl64EEEvPf"), "gather<64l>");
  // void attnscope::cuda::(anonymous namespace)::scores<__nv_bfloat16, true>(as_params, int)
  EXPECT_EQ(
      kernel_name("_ZN9attnscope4cuda12_GLOBAL__N_16scoresI13__nv_bfloat16Lb1EEEv9as_paramsi"),
      "scores<__nv_bfloat16, true>");
  // attnscope::cuda::fill(unsigned char*, std::array<int, 100ul>)
  EXPECT_EQ(kernel_name("_ZN9attnscope4cuda4fillEPhSt5arrayIiLm100EE"), "fill");
  // A namespace among the template's arguments.
  EXPECT_EQ(kernel_name("_ZN3lib7Kernel2INS_5tiles3BigEEEvNT_6ParamsE"),
            "Kernel2<lib::tiles::Big>");
}

TEST(KernelName, KeepsWhatNoCompilerHasWritten) {
  EXPECT_EQ(kernel_name("nvjet_tst_128x64"), "nvjet_tst_128x64");
  EXPECT_EQ(kernel_name(""), "");
  EXPECT_EQ(kernel_name("_Znonsense"), "_Znonsense");
}

}  // namespace kernel_launch_test
}  // namespace attnscope
