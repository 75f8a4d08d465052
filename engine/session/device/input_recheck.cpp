#include "engine/session/device/input_recheck.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "engine/model/numbers.h"
#include "kernels/cpu/parallel.h"

namespace attnscope {
namespace {

constexpr std::int64_t kBytesOfPart = std::int64_t{1} << 20;  // that a thread compares at least

}  // namespace

InputRecheck::~InputRecheck() { release(); }

void InputRecheck::release() {
  if (memory_ != nullptr && !ordinary_) device_.release_host(memory_);
  ordinary_.reset();
  memory_ = nullptr;
  capacity_ = 0;
}

Result<void> InputRecheck::grow(std::size_t bytes) {
  if (bytes <= capacity_) return {};
  release();
  if (auto made = device_.allocate_host(bytes)) {
    memory_ = static_cast<unsigned char*>(*made);
  } else {
    // Memory of that kind is short before any other is: a slower way is better than no session.
    ordinary_.reset(new (std::nothrow) unsigned char[bytes]);
    if (!ordinary_) return made.error();
    memory_ = ordinary_.get();
  }
  capacity_ = bytes;
  return {};
}

bool InputRecheck::same(const void* here, const void* there, std::size_t bytes) const {
  std::atomic<bool> differs = false;
  cpu::parallel_for(
      threads_, to_count(bytes), kBytesOfPart, [&](std::int64_t begin, std::int64_t end) {
        if (std::memcmp(static_cast<const char*>(here) + begin,
                        static_cast<const char*>(there) + begin, to_size(end - begin)) != 0) {
          differs = true;
        }
      });
  return !differs;
}

void InputRecheck::copy(void* here, const void* there, std::size_t bytes) const {
  cpu::parallel_for(threads_, to_count(bytes), kBytesOfPart,
                    [&](std::int64_t begin, std::int64_t end) {
                      std::memcpy(static_cast<char*>(here) + begin,
                                  static_cast<const char*>(there) + begin, to_size(end - begin));
                    });
}

Result<void> InputRecheck::run() {
  const std::vector<Piece> pieces = std::exchange(pieces_, {});
  std::size_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes;
  if (auto ok = grow(total); !ok) return ok;
  std::size_t offset = 0;
  for (const Piece& piece : pieces) {
    if (auto ok = device_.download(memory_ + offset, piece.device, piece.bytes); !ok) return ok;
    offset += piece.bytes;
  }
  if (auto ok = device_.synchronize(); !ok) return ok;
  offset = 0;
  for (const Piece& piece : pieces) {
    const unsigned char* const there = memory_ + offset;
    offset += piece.bytes;
    if (!piece.brought) {
      if (same(piece.host, there, piece.bytes)) continue;
      if (tell_) {
        if (auto ok = tell_(); !ok) return ok;
      }
    }
    copy(piece.host, there, piece.bytes);
  }
  return {};
}

}  // namespace attnscope
