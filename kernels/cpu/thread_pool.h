// Threads for parallel_for. One call at a time; the caller takes part.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/params/lane.h"

namespace attnscope::cpu {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // 0 = hardware threads
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Covers [0, count) in chunks of at least `grain`.
  void parallel_for(std::int64_t count, std::int64_t grain, as_parallel_body body, void* ctx);

  const as_threads* handle() const { return &handle_; }
  int num_threads() const { return handle_.num_threads; }

 private:
  struct Job {
    std::int64_t count = 0;
    std::int64_t chunk = 1;
    as_parallel_body body = nullptr;
    void* ctx = nullptr;
  };
  void work();  // of a worker thread
  void run_chunks();

  as_threads handle_{};
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  Job job_;
  std::int64_t next_ = 0;  // first index not yet taken
  int active_ = 0;         // workers inside the job
  std::uint64_t generation_ = 0;
  bool stop_ = false;
};

}  // namespace attnscope::cpu
