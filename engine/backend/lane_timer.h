// How long calls of a lane's ops take, on the host or on a GPU: the median of rounds, before each
// of which the last-level cache is overwritten, so that every call finds its inputs in memory.
//
//   std::unique_ptr<LaneTimer> timer = host_timer(pool.handle(), bytes of the last-level cache);
//   Result<void*> memory = timer->allocate(bytes);
//   Result<double> us = timer->time([&](const as_call& call) { return call_op(f, &p, call); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/backend/compute_device.h"
#include "kernels/params/lane.h"
#include "kernels/params/result.h"

namespace attnscope {

class LaneTimer {
 public:
  struct Rounds {
    int passes = 1;   // over everything that is timed, of which the best counts: others may compute
    int calls = 1;    // that a round should make, on inputs of their own
    int warm = 1;     // rounds that do not count
    int counted = 1;  // whose median is taken
  };

  virtual ~LaneTimer() = default;
  virtual Rounds rounds() const = 0;
  virtual const char* method() const = 0;       // a sentence without its full stop
  virtual std::int32_t device() const = 0;      // as_tensor::device of its memory
  virtual std::size_t cache_bytes() const = 0;  // of the cache that is overwritten

  // Memory of the lane until clear(). write() may return before the bytes are there; time() waits.
  virtual Result<void*> allocate(std::size_t bytes) = 0;
  virtual Result<void> write(void* to, const void* from, std::size_t bytes) = 0;
  virtual void clear() = 0;

  // Microseconds of a round. `work` is one round, always the same calls with the call it is given.
  // Errors are those of `work` and of the device.
  virtual Result<double> time(const std::function<Result<void>(const as_call&)>& work) = 0;
};

// On the host, by the steady clock. threads: null for the calling thread alone.
std::unique_ptr<LaneTimer> host_timer(const as_threads* threads, std::size_t cache_bytes);

// On a device: a round is one recorded graph, timed by events around its replay. cache_bytes: of
// the L2.
std::unique_ptr<LaneTimer> device_timer(std::shared_ptr<ComputeDevice> device,
                                        std::size_t cache_bytes);

// Of the host's last-level cache; 32 MiB where the system does not say.
std::size_t last_level_cache_bytes();

}  // namespace attnscope
