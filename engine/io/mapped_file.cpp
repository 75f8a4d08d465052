#include "engine/io/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/io/open_file.h"

namespace attnscope {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const auto opened = open_to_read(path);
  if (!opened) return opened.error();
  const int fd = *opened;
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return bad_input(fmt::format("{}: is not a plain file", path));
  }
  MappedFile file;
  file.size_ = static_cast<std::size_t>(info.st_size);
  if (file.size_ > 0) {
    void* memory = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED) {
      const int why = errno;
      ::close(fd);
      return bad_input(
          fmt::format("{}: cannot map {} bytes: {}", path, file.size_, std::strerror(why)));
    }
    file.memory_ = std::shared_ptr<const void>(
        memory, [size = file.size_](const void* p) { ::munmap(const_cast<void*>(p), size); });
  }
  ::close(fd);
  return file;
}

}  // namespace attnscope
