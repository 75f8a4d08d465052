// Tensors that come from the device for whoever looks at an op: what it wrote, and whether what it
// read is still what the host has of it, as a faulty kernel writes to its inputs. All come to
// pinned memory at once. What was read goes on to the host's tensor only where it is other bytes,
// as somebody may be looking at these meanwhile.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
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

  // For the next run(), in order: what an op read, and what only the device has.
  void add(void* host, const void* device, std::size_t bytes) {
    pieces_.push_back({host, device, bytes, false});
  }
  void bring(void* host, const void* device, std::size_t bytes) {
    pieces_.push_back({host, device, bytes, true});
  }
  bool any() const { return !pieces_.empty(); }
  void forget() { pieces_.clear(); }
  // Synchronises with the device. What was added is forgotten.
  Result<void> run();

 private:
  struct Piece {
    void* host;
    const void* device;
    std::size_t bytes;
    bool brought;
  };
  Result<void> grow(std::size_t bytes);
  bool same(const void* here, const void* there, std::size_t bytes) const;
  void copy(void* here, const void* there, std::size_t bytes) const;

  ComputeDevice& device_;
  const as_threads* threads_;
  std::function<Result<void>()> tell_;
  std::vector<Piece> pieces_;
  void release();

  unsigned char* memory_ = nullptr;  // that the device reaches by itself, or ordinary_
  std::unique_ptr<unsigned char[]> ordinary_;
  std::size_t capacity_ = 0;
};

}  // namespace attnscope
