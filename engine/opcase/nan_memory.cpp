#include "engine/opcase/nan_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kHeapAlignment = 64;
constexpr std::int64_t kSmallest = std::int64_t{1} << 20;  // below, filling is as fast
constexpr std::int64_t kPattern = std::int64_t{4} << 20;

// A file of kPattern such bytes that no folder has; -1 where there is none.
int pattern_file() {
  static const int file = [] {
    const int fd = ::memfd_create("attnscope-nan", MFD_CLOEXEC);
    if (fd < 0) return -1;
    const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kPattern), 0xff);
    if (::write(fd, bytes.data(), bytes.size()) == kPattern) return fd;
    ::close(fd);
    return -1;
  }();
  return file;
}

void* map_pattern(std::int64_t bytes) {
  const int file = pattern_file();
  if (file < 0) return nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  void* const memory = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  for (std::int64_t at = 0; at < bytes; at += kPattern) {
    const auto part = static_cast<std::size_t>(std::min(kPattern, bytes - at));
    void* const here = static_cast<char*>(memory) + at;
    if (::mmap(here, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) != here) {
      ::munmap(memory, size);
      return nullptr;
    }
  }
  return memory;
}

}  // namespace

void NanMemoryFree::operator()(void* memory) const {
  if (mapped > 0) {
    ::munmap(memory, static_cast<std::size_t>(mapped));
  } else {
    std::free(memory);
  }
}

NanMemory nan_memory(std::int64_t bytes) {
  if (bytes >= kSmallest) {
    const std::int64_t mapped = as_round_up(bytes, kPage);
    if (void* memory = map_pattern(mapped)) return {memory, NanMemoryFree{mapped}};
  }
  const auto rounded =
      static_cast<std::size_t>(as_round_up(std::max<std::int64_t>(bytes, 1), kHeapAlignment));
  void* const memory = std::aligned_alloc(kHeapAlignment, rounded);
  if (memory != nullptr) std::memset(memory, 0xff, rounded);
  return {memory, {}};
}

}  // namespace attnscope
