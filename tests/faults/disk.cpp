#include "tests/faults/disk.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace attnscope::faults {
namespace {

bool armed = false;
Call failing = Call::kWrite;
Fault how = Fault::kNone;
int first = 0, made = 0;
unsigned shortest = 0;

int code() { return how == Fault::kFull ? ENOSPC : how == Fault::kReadOnly ? EROFS : EIO; }

// Counts a call; true when it fails.
bool fails(Call call) {
  if (!armed || call != failing) return false;
  const bool hit = how != Fault::kNone && made >= first;
  ++made;
  if (hit) errno = code();
  return hit;
}

std::size_t shortened(std::size_t bytes) {
  return armed && shortest > 0 && bytes > shortest ? shortest : bytes;
}

}  // namespace

void fail_from(Call call, int at, Fault fault) {
  failing = call;
  first = at;
  how = fault;
  made = 0;
  armed = true;
}

void shorten_writes(unsigned bytes) {
  shortest = bytes;
  how = Fault::kNone;
  armed = true;
}

int sound_again() {
  armed = false;
  shortest = 0;
  return made;
}

}  // namespace attnscope::faults

using attnscope::faults::Call;
using attnscope::faults::fails;
using attnscope::faults::shortened;

extern "C" {

ssize_t write(int fd, const void* data, std::size_t bytes) {
  constexpr int kLastStandard = 2;
  if (fd > kLastStandard) {
    if (fails(Call::kWrite)) return -1;
    bytes = shortened(bytes);
  }
  return ::syscall(SYS_write, fd, data, bytes);
}

std::size_t fwrite(const void* data, std::size_t size, std::size_t count, std::FILE* file) {
  using Real = std::size_t (*)(const void*, std::size_t, std::size_t, std::FILE*);
  static const auto real = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "fwrite"));
  if (file != stdout && file != stderr && fails(Call::kWrite)) return 0;
  return real(data, size, count, file);
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if ((flags & O_CREAT) != 0 && fails(Call::kCreate)) return -1;
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

std::FILE* fopen(const char* path, const char* mode) {
  using Real = std::FILE* (*)(const char*, const char*);
  static const auto real = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "fopen"));
  if (mode[0] == 'w' && fails(Call::kCreate)) return nullptr;
  return real(path, mode);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (fails(Call::kCreate)) return -1;
  return static_cast<int>(::syscall(SYS_mkdir, path, mode));
}

int fsync(int fd) {
  if (fails(Call::kSync)) return -1;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

int syncfs(int fd) noexcept {
  if (fails(Call::kSync)) return -1;
  return static_cast<int>(::syscall(SYS_syncfs, fd));
}

int rename(const char* from, const char* to) noexcept {
  if (fails(Call::kRename)) return -1;
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

int renameat2(int a, const char* from, int b, const char* to, unsigned flags) noexcept {
  if (fails(Call::kRename)) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, a, from, b, to, flags));
}
}
