// main() of a program whose tests share what their suite has made, such as a recording: with
// ATTNSCOPE_SUITES=I/N it runs whole suites, every N-th from the I-th on, where GoogleTest's own
// shards would deal out single tests and each process would make the same things again.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* const share = std::getenv("ATTNSCOPE_SUITES");
  // A filter asks for certain tests: of a user, or of a death test in its child.
  if (share == nullptr || GTEST_FLAG_GET(filter) != "*") return RUN_ALL_TESTS();
  int index = 0, count = 0;
  if (std::sscanf(share, "%d/%d", &index, &count) != 2 || index < 1 || index > count) {
    std::fprintf(stderr, "ATTNSCOPE_SUITES is '%s': I/N with I from 1 to N\n", share);
    return 2;
  }
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string filter;
  for (int i = index - 1; i < all.total_test_suite_count(); i += count) {
    filter += std::string(all.GetTestSuite(i)->name()) + ".*:";
  }
  GTEST_FLAG_SET(filter, filter.empty() ? "-*" : filter);
  return RUN_ALL_TESTS();
}
