// A file that appears as a whole or not at all: written under a temporary name in the same folder,
// synced, renamed, folder synced. Without commit() nothing is left behind.
//
//   auto file = AtomicFile::create("a/b.safetensors");
//   if (auto ok = file->append(data, n); !ok) return ok.error();
//   return file->commit();
#pragma once

#include <cstddef>
#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// kNo: whole after a crash of the program, not after a loss of power. kSoon: likewise, but the disk
// begins with it at once, so that whoever syncs everything later waits for less.
enum class Sync { kYes, kNo, kSoon };

class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  Result<void> append(const void* data, std::size_t bytes);
  // At most once, after the last append.
  Result<void> commit(Sync sync = Sync::kYes);

 private:
  AtomicFile(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}
  Error give_up(const char* doing, int code);

  std::string path_, temporary_;
  int fd_ = -1;
};

// Makes what was renamed in a folder survive a loss of power.
Result<void> sync_folder(const std::string& folder);

}  // namespace attnscope
