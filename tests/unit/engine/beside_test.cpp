// Work on a thread of its own: all of it, in order, before wait() returns and the thread ends.
#include "engine/session/verify/beside.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace attnscope {
namespace beside_test {

TEST(Beside, DoesWorkInOrderWhileItsOwnerGoesOn) {
  std::promise<void> go;
  std::vector<int> done;
  Beside thread;
  thread.start([&, wait = go.get_future().share()] {
    wait.wait();
    done.push_back(0);
  });
  for (int i = 1; i < 5; ++i) {
    thread.start([&done, i] { done.push_back(i); });
  }
  EXPECT_TRUE(done.empty());
  go.set_value();
  thread.wait();
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2, 3, 4}));
  thread.wait();  // nothing to wait for
}

TEST(Beside, WaitsUntilFewAreLeft) {
  std::promise<void> go;
  std::vector<int> done;
  Beside thread;
  for (int i = 0; i < 3; ++i) thread.start([&done, i] { done.push_back(i); });
  thread.start([wait = go.get_future().share()] { wait.wait(); });
  thread.start([] {});
  thread.wait(2);  // the one that waits and the one behind it
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(thread.left(), 2U);
  go.set_value();
  thread.wait();
  EXPECT_EQ(thread.left(), 0U);
}

TEST(Beside, EndsOnceAllIsDone) {
  int done = 0;
  {
    Beside thread;
    for (int i = 0; i < 100; ++i) thread.start([&done] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

}  // namespace beside_test
}  // namespace attnscope
