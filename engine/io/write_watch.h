// Whether somebody wrote to memory that nobody is to write to, without reading it: its pages are
// protected, and the first write to a run of them is noted and let through, whoever writes and
// however little. What a note cannot say is whether the bytes are others now: for that they have to
// be read.
//
//   WriteWatch watch(data, bytes, 65536);
//   if (watch.written(3)) ..  // something in part 3, since this watch was asked for it last
//
// Parts that share a page with other memory are always said to be written, and so are all where
// pages cannot be protected. Writes by other ways than this process's own addresses (another
// mapping of a file, a device that was given the memory) are not seen, and a system call that is to
// write there fails: for memory of the process alone, which is only read from now on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attnscope {

class WriteWatch {
 public:
  // The memory must outlive it. Others may watch the same memory, all of it. part: bytes of each,
  // the last one may be shorter.
  WriteWatch(const void* data, std::size_t bytes, std::size_t part);
  ~WriteWatch();
  WriteWatch(const WriteWatch&) = delete;
  WriteWatch& operator=(const WriteWatch&) = delete;

  // Whether there was a write to the part since this was asked for it, at first true. A write that
  // comes after the call the next one tells of.
  bool written(std::size_t part);

 private:
  std::uintptr_t data_;
  std::size_t bytes_, part_;
  int region_ = -1;                  // -1: nothing is protected
  std::vector<std::uint64_t> seen_;  // by part: writes, and one
};

}  // namespace attnscope
