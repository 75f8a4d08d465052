#include "engine/io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/io/open_file.h"

namespace attnscope {
namespace {

// Linux writes at most 2 GiB a call.
constexpr std::size_t kLargestWrite = std::size_t{1} << 30;

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Error write_error(const std::string& path, const char* doing, int code) {
  std::string hint;
  if (code == ENOSPC || code == EDQUOT) hint = "make room on the disk, or choose another place";
  if (code == EFBIG) hint = "raise the limit of a file's size: ulimit -f";
  if (code == EACCES || code == EROFS || code == ENOENT) {
    hint = "the folder " + folder_of(path) + " must exist and be writable";
  }
  return bad_input(fmt::format("{}: {}: {}", path, doing, std::strerror(code)), hint);
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  std::string temporary;
  const int fd = open_temporary(path, temporary);
  if (fd < 0) return write_error(path, "cannot write", errno);
  return AtomicFile(path, temporary, fd);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)), fd_(other.fd_) {
  other.fd_ = -1;
  other.temporary_.clear();
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Error AtomicFile::give_up(const char* doing, int code) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  ::unlink(temporary_.c_str());
  temporary_.clear();
  return write_error(path_, doing, code);
}

Result<void> AtomicFile::append(const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, at, std::min(bytes, kLargestWrite));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return give_up("cannot write", n < 0 ? errno : ENOSPC);
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return {};
}

Result<void> AtomicFile::commit(Sync sync) {
  if (sync == Sync::kYes && ::fsync(fd_) != 0) return give_up("cannot sync", errno);
#ifdef SYNC_FILE_RANGE_WRITE
  // Where it does not work, the later sync does it all.
  if (sync == Sync::kSoon) (void)::sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);
#endif
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) return give_up("cannot write", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return give_up("cannot rename", errno);
  temporary_.clear();
  return sync == Sync::kYes ? sync_folder(folder_of(path_)) : Result<void>();
}

Result<void> sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int why = errno;
  if (fd >= 0) ::close(fd);
  if (!synced) return write_error(folder, "written, but the folder cannot be synced", why);
  return {};
}

}  // namespace attnscope
