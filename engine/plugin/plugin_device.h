// The GPU as a plugin's two processes need it: memory that one has and both use, and a stream with
// a clock. CUDA is behind one implementation; tests bring another.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

#include "kernels/params/result.h"

namespace attnscope {

class PluginDevice {
 public:
  using Handle = std::array<unsigned char, 64>;

  virtual ~PluginDevice() = default;

  // Zero or more; aligned to 256 bytes. Nothing else lies in what share() lets others see.
  virtual Result<void*> allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  // For open() in another process of this machine, which closes it before it is released here.
  virtual Result<Handle> share(void* memory) = 0;
  virtual Result<void*> open(const Handle& handle) = 0;
  virtual void close(void* memory) = 0;

  // In the order of the calls; synchronize() waits for all of it.
  virtual Result<void> upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual Result<void> download(void* host, const void* device, std::size_t bytes) = 0;
  virtual Result<void> synchronize() = 0;

  // For as_call::stream.
  virtual void* stream() const = 0;
  // Around a kernel. end() waits for all that this process put on the device, in whatever stream,
  // and fails if any of it did; microseconds since begin().
  virtual Result<void> begin() = 0;
  virtual Result<double> end() = 0;
};

using OpenPluginDevice = std::function<Result<std::shared_ptr<PluginDevice>>()>;

// GPU 0 by CUDA; AS_NO_ENVIRONMENT where there is none, or in a build without CUDA.
Result<std::shared_ptr<PluginDevice>> open_cuda_plugin_device();

}  // namespace attnscope
