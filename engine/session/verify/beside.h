// A thread that does pieces of work in the order in which it is given them, while whoever gives
// them goes on.
//
//   Beside thread;
//   thread.start([&] { .. });  // throws nothing
//   thread.wait();             // until all of it is done
//   thread.wait(2);            // until two pieces at most are left
#pragma once

#include <condition_variable>
#include <cstddef>
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
  void wait(std::size_t left = 0);
  // Pieces that are not done.
  std::size_t left() const;

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable given_, done_;
  std::deque<std::function<void()>> work_;  // the first one is being done
  bool stop_ = false;
  std::thread thread_;  // begins when the others are there
};

}  // namespace attnscope
