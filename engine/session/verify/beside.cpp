#include "engine/session/verify/beside.h"

#include <utility>

namespace attnscope {

Beside::~Beside() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  given_.notify_one();
  thread_.join();
}

void Beside::start(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  given_.notify_one();
}

void Beside::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return work_.empty(); });
}

void Beside::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    given_.wait(lock, [this] { return stop_ || !work_.empty(); });
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    lock.unlock();
    work();
    lock.lock();
    work_.pop_front();
    if (work_.empty()) done_.notify_all();
  }
}

}  // namespace attnscope
