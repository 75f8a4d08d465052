#include "engine/io/open_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace attnscope {
namespace {

std::string hint_of(const std::string& path, int code) {
  namespace fs = std::filesystem;
  if (code == EACCES) return "this user may not read it: change its permissions";
  if (code != ENOENT && code != ENOTDIR) return "";
  std::error_code unknown;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, unknown)) {
    return fmt::format("check its name: there is no folder {}", folder.string());
  }
  if (fs::path(path).is_absolute()) return "check its name";
  return "check its name; it is looked for in " + fs::current_path(unknown).string();
}

}  // namespace

Result<int> open_to_read(const std::string& path) {
  const bool of_shell = path.starts_with("/dev/") || path.starts_with("/proc/");
  const int wait = of_shell ? 0 : O_NONBLOCK;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | wait);
  if (fd < 0) {
    const int why = errno;
    return bad_input(fmt::format("{}: cannot open: {}", path, std::strerror(why)),
                     hint_of(path, why));
  }
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0;
  if (known && (S_ISREG(info.st_mode) || (of_shell && !S_ISDIR(info.st_mode)))) return fd;
  ::close(fd);
  if (known && S_ISDIR(info.st_mode))
    return bad_input(path + ": is a folder, not a plain file", "name a file");
  return bad_input(path + ": is not a plain file", "name a file, no pipe, socket or device");
}

int open_temporary(const std::string& path, std::string& temporary) {
  static std::atomic<unsigned> counter{0};
  int fd = -1;
  do {
    temporary = fmt::format("{}.{}.{}.tmp", path, static_cast<long>(::getpid()), counter++);
    fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EEXIST);
  return fd;
}

}  // namespace attnscope
