#include "engine/session/worker.h"

#include <exception>

namespace attnscope {

SessionWorker::SessionWorker(std::unique_ptr<Session> session) : session_(std::move(session)) {
  snapshot_ = take_snapshot(*session_, true);
  thread_ = std::thread([this] { run(); });
}

SessionWorker::~SessionWorker() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    commands_.clear();
    session_->cancel();
  }
  wake_.notify_all();
  thread_.join();
}

void SessionWorker::post(Command command) {
  {
    std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  wake_.notify_one();
}

void SessionWorker::cancel() {
  std::lock_guard lock(mutex_);
  commands_.clear();
  if (busy_) session_->cancel();
}

std::shared_ptr<const Snapshot> SessionWorker::snapshot() const {
  std::lock_guard lock(mutex_);
  return snapshot_;
}

bool SessionWorker::idle() const {
  std::lock_guard lock(mutex_);
  return !busy_ && commands_.empty();
}

void SessionWorker::wait_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return !busy_ && commands_.empty(); });
}

std::optional<Error> SessionWorker::take_error() {
  std::lock_guard lock(mutex_);
  return std::exchange(error_, std::nullopt);
}

void SessionWorker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || !commands_.empty(); });
    if (stop_) return;
    Command command = std::move(commands_.front());
    commands_.pop_front();
    busy_ = true;
    session_->resume();
    lock.unlock();
    std::optional<Error> failed;
    try {
      if (auto ok = command(*session_); !ok) failed = ok.error();
    } catch (const std::exception& e) {
      // Out of memory and the like: the session stays where it is.
      failed = Error{AS_INTERNAL, e.what(), "the session is unchanged since the last op"};
    }
    std::shared_ptr<const Snapshot> next;
    try {
      next = take_snapshot(*session_, true);
    } catch (const std::exception& e) {
      failed = Error{AS_NO_ENVIRONMENT, e.what(), "the picture shown is the one before"};
    }
    lock.lock();
    busy_ = false;
    if (failed) error_ = std::move(failed);
    if (next) snapshot_ = std::move(next);
    if (commands_.empty()) idle_.notify_all();
  }
}

}  // namespace attnscope
