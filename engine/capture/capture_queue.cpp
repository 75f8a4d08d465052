#include "engine/capture/capture_queue.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "engine/io/elapsed.h"

namespace attnscope {

CaptureQueue::CaptureQueue(std::unique_ptr<CaptureWriter> writer)
    : writer_(std::move(writer)), thread_([this] { work(); }) {}

CaptureQueue::~CaptureQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CaptureQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Step step = waiting_.front();
    lock.unlock();
    write(step, nullptr);
    lock.lock();
    waiting_.pop_front();
    changed_.notify_all();
  }
}

void CaptureQueue::write(const Step& step, const Session* session) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto ok = [&]() -> Result<void> {
    try {
      return writer_->add(*step.summary, step.trace.get(), session);
    } catch (const std::bad_alloc&) {
      return Error{AS_NO_ENVIRONMENT,
                   fmt::format("step {}: not enough memory to write it", step.summary->step),
                   "record fewer rows: --rows N"};
    }
  }();
  const std::lock_guard lock(mutex_);
  seconds_ += seconds_since(start);
  if (!ok) error_ = ok.error();
}

Result<void> CaptureQueue::add(std::shared_ptr<const StepSummary> summary,
                               std::shared_ptr<const StepTrace> trace, const Session* session) {
  const bool here = session != nullptr && writer_->keeps_blocks(summary->step);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return here ? waiting_.empty() : waiting_.size() < kMost; });
  if (here) {
    lock.unlock();
    write({std::move(summary), std::move(trace)}, session);
    lock.lock();
  } else if (!error_) {
    waiting_.push_back({std::move(summary), std::move(trace)});
    changed_.notify_all();
  }
  if (error_) return *error_;
  return {};
}

CaptureTotals CaptureQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty(); });
  return writer_->totals();
}

Result<CaptureTotals> CaptureQueue::finish() {
  drain();
  const std::lock_guard lock(mutex_);
  if (error_) return *error_;
  const auto start = std::chrono::steady_clock::now();
  auto totals = writer_->finish();
  seconds_ += seconds_since(start);
  return totals;
}

double CaptureQueue::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

}  // namespace attnscope
