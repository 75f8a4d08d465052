// Memory of which parts can rest in a file without a name: they cost no memory then, and are back
// as soon as somebody reads or writes them.
//
//   RestingMemory rows(bytes);
//   rows.rest(0, old_bytes);   // they are what they were, and take time again at the next touch
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace attnscope {

// A file for one or many of them, in $TMPDIR, else in /var/tmp, made when something first rests.
// Safe for any number of threads.
class RestingFile {
 public:
  RestingFile() = default;
  ~RestingFile();
  RestingFile(const RestingFile&) = delete;
  RestingFile& operator=(const RestingFile&) = delete;

 private:
  friend class RestingMemory;
  bool open();
  std::int64_t take(std::size_t bytes) {  // a place in it, never taken before
    return size_.fetch_add(static_cast<std::int64_t>(bytes));
  }

  std::atomic<std::int64_t> size_{0};
  std::atomic<bool> full_{false};  // there was no room once
  int file_ = -1;
  bool tried_ = false;
};

class RestingMemory {
 public:
  // Zeros that cost nothing until they are written. Throws std::bad_alloc. file: of others too;
  // null = one of its own.
  explicit RestingMemory(std::size_t bytes, std::shared_ptr<RestingFile> file = nullptr);
  ~RestingMemory();
  RestingMemory(const RestingMemory&) = delete;
  RestingMemory& operator=(const RestingMemory&) = delete;

  std::uint8_t* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // Whole pages within [begin, end), in bytes, go to the file; nobody may write to them meanwhile,
  // others may read. False: there is no file that costs no memory, or no room in it; all stays as
  // it is.
  bool rest(std::size_t begin, std::size_t end);

 private:
  void punch(std::size_t begin, std::size_t end) const;
  std::shared_ptr<RestingFile> file_;
  std::uint8_t* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::int64_t place_ = 0;     // in the file
  std::vector<bool> in_file_;  // by page
};

// Of all together, how much lies in files, whether or not it has been read since.
std::int64_t resting_bytes();

}  // namespace attnscope
