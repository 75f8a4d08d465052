// A device for tests that is memory which two processes map, under other addresses. Its stream is a
// number: a kernel that sets it has broken the device.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "engine/plugin/plugin_device.h"

namespace attnscope {

class SharedDevice : public PluginDevice {
 public:
  static constexpr double kMicroseconds = 7;  // what its clock says of every kernel
  int shares = 0, held = 0;
  bool unshareable = false;  // handles that lead nowhere

  ~SharedDevice() override {
    while (!pieces_.empty()) release(pieces_.begin()->first);
  }
  Result<void*> allocate(std::size_t bytes) override {
    const int file = ::memfd_create("attnscope-test-device", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return lost("no memory");
    return map(file, bytes);
  }
  void release(void* memory) override {
    const auto it = pieces_.find(memory);
    ::munmap(memory, it->second.bytes);
    ::close(it->second.file);
    pieces_.erase(it);
    --held;
  }
  Result<Handle> share(void* memory) override {
    ++shares;
    const Piece& piece = pieces_.at(memory);
    Name name{unshareable ? 0 : ::getpid(), piece.file, piece.bytes};
    Handle handle{};
    std::memcpy(handle.data(), &name, sizeof(name));
    return handle;
  }
  Result<void*> open(const Handle& handle) override {
    Name name{};
    std::memcpy(&name, handle.data(), sizeof(name));
    const std::string path =
        "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return lost("a handle of nobody");
    return map(file, name.bytes);
  }
  void close(void* memory) override { release(memory); }

  Result<void> upload(void* device, const void* host, std::size_t bytes) override {
    std::memcpy(device, host, bytes);
    return {};
  }
  Result<void> download(void* host, const void* device, std::size_t bytes) override {
    std::memcpy(host, device, bytes);
    return {};
  }
  Result<void> synchronize() override { return {}; }
  void* stream() const override { return const_cast<std::int32_t*>(&broken_); }
  Result<void> begin() override { return {}; }
  Result<double> end() override {
    if (broken_ != 0) return lost("an illegal access was encountered");
    return kMicroseconds;
  }

 private:
  struct Piece {
    int file;
    std::size_t bytes;
  };
  struct Name {
    std::int64_t process;
    std::int64_t file;
    std::size_t bytes;
  };
  static Error lost(const char* what) { return {AS_NO_ENVIRONMENT, what, "test"}; }
  Result<void*> map(int file, std::size_t bytes) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return lost("no address space");
    pieces_[memory] = {file, bytes};
    ++held;
    return memory;
  }

  std::map<void*, Piece> pieces_;
  std::int32_t broken_ = 0;
};

}  // namespace attnscope
