// Threads for parallel_for. One call at a time; the caller takes part. A call from inside a body,
// or while another thread's call runs, is carried out by its caller alone.
#pragma once

#include <atomic>
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
  void work();                    // of a worker thread
  void wake(std::int64_t taken);  // of the job's count
  void run_chunks();
  bool join_job(std::uint64_t* seen);

  as_threads handle_{};
  std::vector<std::thread> workers_;
  Job job_;                             // written only while the gate is closed and empty
  std::atomic<std::int64_t> next_{0};   // first index not yet taken
  std::atomic<std::uint64_t> gate_{0};  // bit 0 open, bits 1-15 workers inside, then the job number
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex call_mutex_;   // one parallel_for at a time
  std::mutex sleep_mutex_;  // with wake_
  std::condition_variable wake_;
};

}  // namespace attnscope::cpu
