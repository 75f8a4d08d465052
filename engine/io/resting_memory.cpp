#include "engine/io/resting_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace attnscope {
namespace {

// linux/magic.h: file systems that are memory themselves.
constexpr std::uint32_t kTmpfs = 0x01021994, kRamfs = 0x858458F6;

std::mutex opening;
std::atomic<std::int64_t> resting{0};

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::size_t rounded_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

}  // namespace

RestingFile::~RestingFile() {
  if (file_ >= 0) ::close(file_);
}

bool RestingFile::open() {
  const std::scoped_lock lock(opening);
  if (std::exchange(tried_, true)) return file_ >= 0;
  const char* set = std::getenv("TMPDIR");
  const std::string folder = set != nullptr && *set != '\0' ? set : "/var/tmp";
  file_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file_ < 0) {
    // Some file systems know no files without a name.
    std::string path = folder + "/attnscope-XXXXXX";
    file_ = ::mkostemp(path.data(), O_CLOEXEC);
    if (file_ < 0) return false;
    ::unlink(path.c_str());
  }
  struct statfs where {};
  const bool known = ::fstatfs(file_, &where) == 0;
  const auto kind = static_cast<std::uint32_t>(where.f_type);
  // Where what is let go cannot be given back the file would only grow.
  const bool gives = ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
  if (known && gives && kind != kTmpfs && kind != kRamfs) return true;
  ::close(std::exchange(file_, -1));
  return false;
}

RestingMemory::RestingMemory(std::size_t bytes, std::shared_ptr<RestingFile> file)
    : file_(file ? std::move(file) : std::make_shared<RestingFile>()),
      bytes_(rounded_up(std::max<std::size_t>(bytes, 1), page_bytes())) {
  void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::uint8_t*>(p);
  place_ = file_->take(bytes_);
}

RestingMemory::~RestingMemory() {
  ::munmap(data_, bytes_);
  const auto pages = std::ranges::count(in_file_, true);
  if (pages == 0) return;
  resting -= pages * static_cast<std::int64_t>(page_bytes());
  punch(0, bytes_);
}

void RestingMemory::punch(std::size_t begin, std::size_t end) const {
  ::fallocate(file_->file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              place_ + static_cast<off_t>(begin), static_cast<off_t>(end - begin));
}

bool RestingMemory::rest(std::size_t begin, std::size_t end) {
  const std::size_t page = page_bytes();
  begin = rounded_up(begin, page);
  end = std::min(end, bytes_) / page * page;
  if (begin >= end) return true;
  if (file_->full_ || !file_->open()) return false;
  const int file = file_->file_;
  const auto at = [&](std::size_t byte) { return place_ + static_cast<off_t>(byte); };
  // Room first: without it the bytes would be lost when the file is written to the disk.
  in_file_.resize(bytes_ / page);
  if (::posix_fallocate(file, at(begin), static_cast<off_t>(end - begin)) != 0) {
    // Some keep what they found, which others may need more.
    for (std::size_t i = begin / page; i < end / page; ++i) {
      if (!in_file_[i]) punch(i * page, (i + 1) * page);
    }
    file_->full_ = true;
    return false;
  }
  for (std::size_t i = begin / page; i < end / page; ++i) {
    if (!in_file_[i]) resting += static_cast<std::int64_t>(page);
    in_file_[i] = true;
  }
  // Pages that rest already are those of the file, and are written with what they have.
  for (std::size_t done = begin; done < end;) {
    const ssize_t n = ::pwrite(file, data_ + done, end - done, at(done));
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return ::mmap(data_ + begin, end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file,
                at(begin)) != MAP_FAILED;
}

std::int64_t resting_bytes() { return resting; }

}  // namespace attnscope
