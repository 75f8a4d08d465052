// Whether what an op read is on the device still what the host has of it: a faulty kernel writes to
// its inputs. The device's bytes come to memory of their own, as others may be looking at the
// host's meanwhile, and to the host's tensor only where they are others.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/backend/compute_device.h"
#include "kernels/params/lane.h"

namespace attnscope {

class InputRecheck {
 public:
  InputRecheck(ComputeDevice& device, const as_threads* threads)
      : device_(device), threads_(threads) {}
  ~InputRecheck();
  InputRecheck(const InputRecheck&) = delete;
  InputRecheck& operator=(const InputRecheck&) = delete;

  // Called before host memory changes.
  void before_change(std::function<Result<void>()> tell) { tell_ = std::move(tell); }

  // For the next run().
  void add(void* host, const void* device, std::size_t bytes) {
    pieces_.push_back({host, device, bytes});
  }
  // Synchronises with the device. What was added is forgotten.
  Result<void> run();

 private:
  struct Piece {
    void* host;
    const void* device;
    std::size_t bytes;
  };
  Result<void> grow(std::size_t bytes);
  bool same(const void* here, const void* there, std::size_t bytes) const;

  ComputeDevice& device_;
  const as_threads* threads_;
  std::function<Result<void>()> tell_;
  std::vector<Piece> pieces_;
  unsigned char* memory_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace attnscope
