// What a program says when an exception leaves where nobody can catch it.
#include "app/wiring/command_end.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <thread>

namespace attnscope {
namespace {

template <class Exception>
int with_thread_that_throws(const Exception& e) {
  return guarded_main([&] {
    std::thread([&] { throw e; }).join();
    return 0;
  });
}

TEST(CommandEnd, MemoryThatAThreadRunsOutOfIsSaid) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(with_thread_that_throws(std::bad_alloc()), testing::ExitedWithCode(AS_NO_ENVIRONMENT),
              "attnscope: not enough memory; ask for less");
}

TEST(CommandEnd, OtherExceptionsOfAThreadEndAsBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(with_thread_that_throws(std::runtime_error("of a library")), "of a library");
}

TEST(CommandEnd, AnExceptionOfTheCommandBecomesACode) {
  EXPECT_EQ(guarded_main([] { return 3; }), 3);
  EXPECT_EQ(guarded_main([]() -> int { throw std::bad_alloc(); }), AS_NO_ENVIRONMENT);
  EXPECT_EQ(guarded_main([]() -> int { throw std::runtime_error("x"); }), AS_INTERNAL);
}

}  // namespace
}  // namespace attnscope
