// The GPU as the rest of the project sees it: memory, streams, events, graphs, errors as Result. No
// CUDA header is needed to use it.
//
//   auto device = Device::get();
//   if (!device) report(device.error());  // one line: why there is no GPU lane
//   auto memory = DeviceMemory::allocate(bytes);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "kernels/params/result.h"

namespace attnscope::cuda {

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::size_t shared_memory = 0;  // bytes that a block may ask for
  std::size_t memory = 0;         // bytes
  std::size_t l2 = 0;             // bytes
  int driver = 0;                 // newest CUDA version that the driver supports, 13000 = 13.0
  int runtime = 0;
};

// AS_NO_ENVIRONMENT with what failed, from a cudaError_t.
Error device_error(int code, const std::string& what);

// GPU 0 of the process (CUDA_VISIBLE_DEVICES chooses which one that is).
class Device {
 public:
  // Opened on first use; the same answer ever after.
  static const Result<const Device*>& get();

  const DeviceInfo& info() const { return info_; }
  std::size_t free_memory() const;
  // Waits for all work of this process on it, whatever stream it is in.
  Result<void> synchronize() const;

 private:
  Device() = default;
  static Result<const Device*> open();

  DeviceInfo info_;
};

// Names memory on the GPU for other processes of this machine.
using MemoryHandle = std::array<unsigned char, 64>;

// Owns memory on the GPU.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory();
  static Result<DeviceMemory> allocate(std::size_t bytes);

  unsigned char* data() const { return data_; }
  std::size_t size() const { return size_; }
  // For OpenedMemory elsewhere. Others see the 2 MiB pages around it too: a size that is a multiple
  // of kSharedPage shares nothing else.
  Result<MemoryHandle> share() const;
  static constexpr std::size_t kSharedPage = 2u << 20;

 private:
  void swap(DeviceMemory& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  unsigned char* data_ = nullptr;
  std::size_t size_ = 0;
};

// Memory that another process has shared, for as long as that process keeps it.
class OpenedMemory {
 public:
  OpenedMemory() = default;
  OpenedMemory(OpenedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  OpenedMemory& operator=(OpenedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~OpenedMemory();
  static Result<OpenedMemory> open(const MemoryHandle& handle);

  unsigned char* data() const { return data_; }

 private:
  unsigned char* data_ = nullptr;
};

// Owns host memory that the GPU can read and write: copies to and from it overlap with other work.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept { swap(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedMemory();
  static Result<PinnedMemory> allocate(std::size_t bytes);

  unsigned char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  void swap(PinnedMemory& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  unsigned char* data_ = nullptr;
  std::size_t size_ = 0;
};

class Event;

class Stream {
 public:
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream();
  // urgent: its kernels get free multiprocessors before those of other streams.
  static Result<Stream> create(bool urgent = false);
  // In order with the default stream, which others pass by: for kernels of unknown streams.
  static Result<Stream> create_in_order();

  void* handle() const { return handle_; }  // a cudaStream_t, for as_call::stream
  // Host memory may be reused after the call returns only once synchronize() has.
  Result<void> upload(void* device, const void* host, std::size_t bytes) const;
  Result<void> download(void* host, const void* device, std::size_t bytes) const;
  Result<void> copy(void* to, const void* from, std::size_t bytes) const;  // on the GPU
  Result<void> fill(void* device, int byte, std::size_t bytes) const;
  // Piece i lies at `device` + i * bytes. By one launch for a hundred of them.
  Result<void> fill_pieces(void* device, std::size_t bytes, std::span<const std::int32_t> pieces,
                           int byte) const;
  // Many pieces of so many bytes at once, from and to either side.
  Result<void> copy_pieces(std::span<void* const> to, std::span<const void* const> from,
                           std::size_t bytes) const;
  Result<void> synchronize() const;
  // What follows starts after the event.
  Result<void> wait(const Event& event) const;

 private:
  explicit Stream(void* handle) : handle_(handle) {}
  void* handle_;
};

// A point in a stream, for timing.
class Event {
 public:
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event();
  static Result<Event> create();

  Result<void> record(const Stream& stream) const;
  // While a graph is captured: an event that every launch of the graph records again.
  Result<void> record_in_graph(const Stream& stream) const;
  // Waits for this event; microseconds since the earlier one.
  Result<double> since(const Event& earlier) const;

 private:
  friend class Stream;
  explicit Event(void* handle) : handle_(handle) {}
  void* handle_;
};

// Work recorded once, launched as often as wanted.
class Graph {
 public:
  Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&&) = delete;
  ~Graph();
  // What `work` puts on the stream. Workspaces must have their final size: run it once before.
  static Result<Graph> capture(const Stream& stream, const std::function<Result<void>()>& work);

  Result<void> launch(const Stream& stream) const;

 private:
  explicit Graph(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace attnscope::cuda
