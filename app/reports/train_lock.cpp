#include "app/reports/train_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace attnscope {

Result<TrainLock> TrainLock::take(const std::string& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  const std::string path = folder + "/.lock";
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (file < 0) {
    return bad_input(fmt::format("{}: {}", path, std::strerror(errno)),
                     "choose a folder that can be written: -o FOLDER");
  }
  TrainLock lock(file);
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return lock;
  return bad_input(fmt::format("{}: another training is at work in it", folder),
                   "wait for it, stop it with Ctrl-C, or choose another folder: -o FOLDER");
}

TrainLock::~TrainLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace attnscope
