// A GPU as a session needs it: memory, copies in stream order, branches that run side by side,
// events, recorded graphs. One implementation drives CUDA, tests bring their own.
//
// Everything is put on streams and nothing waits, unless said. The first failure of a device is
// final: later calls may fail too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kernels/params/kernel_launch.h"
#include "kernels/params/result.h"

namespace attnscope {

class ComputeDevice {
 public:
  static constexpr int kBranches = 4;  // streams; 0 is the main one

  virtual ~ComputeDevice() = default;

  virtual Result<void*> allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  // Host memory that copies of a recorded graph may name. Until those copies are done an upload
  // from it reads what is there then, so it may be changed only after synchronize().
  virtual Result<void*> allocate_host(std::size_t bytes) = 0;
  virtual void release_host(void* memory) = 0;

  // On the main stream. Other host memory of an upload may be changed once the call returns; what a
  // download fills is there once synchronize() has returned.
  virtual Result<void> upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual Result<void> download(void* host, const void* device, std::size_t bytes) = 0;
  virtual Result<void> copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual Result<void> fill(void* device, int byte, std::size_t bytes) = 0;
  // Piece i lies at `device` + i * bytes.
  virtual Result<void> fill_pieces(void* device, std::size_t bytes,
                                   std::span<const std::int32_t> pieces, int byte) {
    for (const std::int32_t i : pieces) {
      void* piece = static_cast<unsigned char*>(device) + static_cast<std::size_t>(i) * bytes;
      if (auto ok = fill(piece, byte, bytes); !ok) return ok;
    }
    return {};
  }
  // Waits until everything on every stream is done.
  virtual Result<void> synchronize() = 0;

  virtual void* stream(int branch) const = 0;  // for as_call::stream
  // What follows on `branch` starts after what lies on `on`.
  virtual Result<void> order(int branch, int on) = 0;
  // An event with a number, on a branch; microseconds between two that are done.
  virtual Result<void> mark(int branch, std::size_t event) = 0;
  virtual Result<double> between(std::size_t first, std::size_t second) = 0;

  // Records what `work` puts on the streams, from the main stream and back to it, without running
  // it. Nothing may be allocated meanwhile. replay() runs it again on the main stream.
  virtual Result<std::size_t> record(const std::function<Result<void>()>& work) = 0;
  virtual Result<void> replay(std::size_t graph) = 0;

  // The kernels that `work` would put on the main stream, without running it. It has run before, so
  // that it allocates nothing. An error leaves the device as it was: not all work can be captured.
  virtual Result<OpLaunches> launches(const std::function<Result<void>()>& work) = 0;
};

// GPU 0 by CUDA; AS_NO_ENVIRONMENT where there is none, or in a build without CUDA.
Result<std::shared_ptr<ComputeDevice>> open_cuda_device();

}  // namespace attnscope
