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

void Beside::wait(std::size_t left) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return work_.size() <= left; });
}

std::size_t Beside::left() const {
  const std::lock_guard lock(mutex_);
  return work_.size();
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
    done_.notify_all();
  }
}

}  // namespace attnscope
