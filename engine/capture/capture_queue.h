// Writes the steps of a capture beside the run that makes them: a step's statistics and files take
// about as long as its ops, and a run that does not wait for them ends earlier where there is a
// core to spare.
//
//   CaptureQueue queue(std::move(*CaptureWriter::create(...)));
//   queue.add(summary, trace, session);             // step by step
//   auto totals = queue.finish();
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/capture/capture_writer.h"

namespace attnscope {

class CaptureQueue {
 public:
  explicit CaptureQueue(std::unique_ptr<CaptureWriter> writer);
  // Writes what waits; not finished, so that the capture stays an incomplete one.
  ~CaptureQueue();
  CaptureQueue(const CaptureQueue&) = delete;
  CaptureQueue& operator=(const CaptureQueue&) = delete;

  // As CaptureWriter::add. Waits while kMost steps wait, and, where the blocks of this step are to
  // be kept, until it is written: they are the session's own. An error is that of this step or of
  // one before it; nothing is written after it.
  Result<void> add(std::shared_ptr<const StepSummary> summary,
                   std::shared_ptr<const StepTrace> trace, const Session* session);
  // What is written when nothing waits any more.
  CaptureTotals drain();
  Result<CaptureTotals> finish();
  // That writing took, beside the run or not.
  double seconds() const;

  static constexpr std::size_t kMost = 2;

 private:
  struct Step {
    std::shared_ptr<const StepSummary> summary;
    std::shared_ptr<const StepTrace> trace;
  };
  void work();
  void write(const Step& step, const Session* session);

  const std::unique_ptr<CaptureWriter> writer_;  // whoever holds a step that is being written
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Step> waiting_;  // the first one is being written
  std::optional<Error> error_;
  double seconds_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace attnscope
