#include "kernels/cpu/thread_pool.h"

#include <algorithm>

namespace attnscope::cpu {
namespace {

constexpr std::uint64_t kOpen = 1;
constexpr std::uint64_t kOneInside = 2;
constexpr std::uint64_t kInsideMask = 0xfffe;
constexpr int kJobShift = 16;

// A worker looks for the next job this many times (tens of microseconds) before it sleeps: ops
// follow each other closely, and waking a sleeper costs more than a small op.
constexpr int kSpins = 2000;
constexpr int kSpinsBeforeYield = 200;
constexpr int kChunksPerThread = 8;
constexpr int kMaxThreads = 1024;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

void run_on_pool(void* pool, std::int64_t count, std::int64_t grain, as_parallel_body body,
                 void* ctx) {
  static_cast<ThreadPool*>(pool)->parallel_for(count, grain, body, ctx);
}

thread_local bool inside_body = false;

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  if (num_threads <= 0) num_threads = static_cast<int>(std::thread::hardware_concurrency());
  num_threads = std::clamp(num_threads, 1, kMaxThreads);
  handle_.pool = this;
  handle_.num_threads = num_threads;
  handle_.parallel_for = run_on_pool;
  workers_.reserve(static_cast<std::size_t>(num_threads - 1));
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(sleep_mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain, as_parallel_body body,
                              void* ctx) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  std::unique_lock<std::mutex> call(call_mutex_, std::defer_lock);
  if (workers_.empty() || count <= grain || inside_body || !call.try_lock()) {
    body(ctx, 0, count);
    return;
  }
  const std::int64_t pieces = static_cast<std::int64_t>(handle_.num_threads) * kChunksPerThread;
  job_ = {count, std::max(grain, (count + pieces - 1) / pieces), body, ctx};
  next_.store(0, std::memory_order_relaxed);
  const std::uint64_t number = (gate_.load(std::memory_order_relaxed) >> kJobShift) + 1;
  gate_.store(number << kJobShift | kOpen);
  wake(0);
  run_chunks();
  gate_.fetch_and(~kOpen);
  for (int spin = 0; (gate_.load(std::memory_order_acquire) & kInsideMask) != 0; ++spin) {
    if (spin < kSpinsBeforeYield) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

// A sleeper or two, who wake others in turn while there is a chunk for each: waking one costs as
// much as a small chunk. Who is awake looks for jobs by itself.
void ThreadPool::wake(std::int64_t taken) {
  const std::int64_t sleepers = sleepers_.load();
  const std::int64_t chunks = (job_.count - taken - 1) / job_.chunk;  // beside the next one
  const std::int64_t awake = handle_.num_threads - 1 - sleepers;
  const std::int64_t wanted = std::min({sleepers, chunks - awake, std::int64_t{2}});
  if (wanted <= 0) return;
  { std::lock_guard<std::mutex> lock(sleep_mutex_); }
  for (std::int64_t i = 0; i < wanted; ++i) wake_.notify_one();
}

void ThreadPool::run_chunks() {
  inside_body = true;
  const Job job = job_;
  for (;;) {
    const std::int64_t begin = next_.fetch_add(job.chunk, std::memory_order_relaxed);
    if (begin >= job.count) break;
    job.body(job.ctx, begin, std::min(begin + job.chunk, job.count));
  }
  inside_body = false;
}

// Enters the open job unless this worker has already been in it.
bool ThreadPool::join_job(std::uint64_t* seen) {
  std::uint64_t gate = gate_.load();
  while ((gate & kOpen) != 0 && gate >> kJobShift != *seen) {
    if (gate_.compare_exchange_weak(gate, gate + kOneInside)) {
      *seen = gate >> kJobShift;
      return true;
    }
  }
  return false;
}

void ThreadPool::work() {
  std::uint64_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    bool joined = false;
    for (int spin = 0; spin < kSpins && !joined; ++spin) {
      joined = join_job(&seen);
      if (!joined) pause();
    }
    if (!joined) {
      std::unique_lock<std::mutex> lock(sleep_mutex_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return stop_.load() || (joined = join_job(&seen)); });
      sleepers_.fetch_sub(1);
      lock.unlock();
      if (joined) wake(next_.load(std::memory_order_relaxed));
    }
    if (!joined) continue;
    run_chunks();
    gate_.fetch_sub(kOneInside, std::memory_order_release);
  }
}

}  // namespace attnscope::cpu
