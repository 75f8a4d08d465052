#include "engine/io/folder_swap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/io/atomic_file.h"
#include "engine/io/folder.h"

namespace attnscope {
namespace {

bool exchange(const std::string& a, const std::string& b) {
#ifdef RENAME_EXCHANGE
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
#else
  (void)a;
  (void)b;
  return false;
#endif
}

Error rename_error(const std::string& path) {
  return bad_input(fmt::format("{}: cannot be replaced: {}", path, std::strerror(errno)));
}

// Somebody writes to the capture in this folder (hold_capture).
Result<void> check_unheld(const std::string& path) {
  const int fd = ::open((path + "/steps.jsonl").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const bool held = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  if (!held) return {};
  return bad_input(fmt::format("{}: is being recorded", path),
                   "wait until that recording ends, or choose another name");
}

}  // namespace

void hold_capture(int fd) { (void)::flock(fd, LOCK_EX | LOCK_NB); }

Result<void> check_capture_target(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path path = name;
  std::error_code code;
  if (path.filename().empty() || path.filename() == "." || path.filename() == "..") {
    return bad_input(fmt::format("'{}': names no capture", path.string()),
                     "choose a name, such as run.acap");
  }
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (auto ok = check_folder(path.string(), parent, "choose another name"); !ok) return ok;
  if (!fs::exists(fs::symlink_status(path, code))) return {};
  if (fs::is_symlink(path, code)) {
    return bad_input(fmt::format("{}: is a link to {}, which a capture would replace",
                                 path.string(), fs::read_symlink(path, code).string()),
                     "name what it leads to, or choose another name");
  }
  if (!fs::is_directory(path, code) || !fs::exists(path / "index.json", code)) {
    const bool empty = fs::is_directory(path, code) && fs::is_empty(path, code);
    if (empty) return {};
    return bad_input(fmt::format("{}: exists and is no capture", path.string()),
                     "choose another name; only captures are replaced");
  }
  return check_unheld(name);
}

Result<void> replace_folder(const std::string& made, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  const std::string parent = fs::path(path).parent_path().string();
  if (!fs::exists(path, code)) {
    if (::rename(made.c_str(), path.c_str()) != 0) return rename_error(path);
    return sync_folder(parent.empty() ? "." : parent);
  }
  if (auto ok = check_unheld(path); !ok) return ok;
  std::string old = made;
  if (!exchange(made, path)) {
    old = fmt::format("{}.old-{}", path, static_cast<long>(::getpid()));
    if (::rename(path.c_str(), old.c_str()) != 0) return rename_error(path);
    if (::rename(made.c_str(), path.c_str()) != 0) {
      Error error = rename_error(path);
      (void)::rename(old.c_str(), path.c_str());
      return error;
    }
  }
  if (auto ok = sync_folder(parent.empty() ? "." : parent); !ok) return ok;
  fs::remove_all(old, code);
  return {};
}

}  // namespace attnscope
