// A thread that does pieces of work in the order in which it is given them, while whoever gives
// them goes on.
//
//   Beside thread;
//   thread.start([&] { .. });  // throws nothing
//   thread.wait();             // until all of it is done
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace attnscope {

class Beside {
 public:
  Beside() : thread_([this] { run(); }) {}
  // Once all work is done.
  ~Beside();
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  void start(std::function<void()> work);
  void wait();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable given_, done_;
  std::deque<std::function<void()>> work_;  // the first one is being done
  bool stop_ = false;
  std::thread thread_;  // begins when the others are there
};

}  // namespace attnscope
