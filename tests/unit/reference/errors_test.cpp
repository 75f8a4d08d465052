// What exceptions of libtorch become outside the module.
#include "reference/torch/errors.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace attnscope::reference {
namespace {

TEST(ReferenceErrors, MemoryThatIsNotThereIsNoBug) {
  const Error error = error_of("ref.model", std::bad_alloc());
  EXPECT_EQ(error.code, AS_NO_ENVIRONMENT);
  EXPECT_EQ(error.message, "ref.model: out of memory");
  EXPECT_EQ(error.hint, "use fewer tokens a step or a smaller model");
  const std::runtime_error words("DefaultCPUAllocator: can't allocate memory: 8 bytes");
  EXPECT_EQ(error_of("training", words).code, AS_NO_ENVIRONMENT);
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("CUDA out of memory. Tried to allocate 2 GiB")));
}

TEST(ReferenceErrors, WhatIsNotKnownIsABug) {
  const Error error = error_of("ref.model", std::runtime_error("sizes of tensors differ"));
  EXPECT_EQ(error.code, AS_INTERNAL);
  EXPECT_EQ(error.message, "ref.model: sizes of tensors differ");
}

}  // namespace
}  // namespace attnscope::reference
