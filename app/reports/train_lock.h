// One training at a time in a folder: two would write over each other's states.
#pragma once

#include <string>
#include <utility>

#include "kernels/params/result.h"

namespace attnscope {

class TrainLock {
 public:
  // Makes the folder where there is none. AS_BAD_INPUT: it cannot be made, or another training has
  // it. Held until the lock goes, or its process ends.
  static Result<TrainLock> take(const std::string& folder);
  TrainLock(TrainLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  TrainLock& operator=(TrainLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~TrainLock();

 private:
  explicit TrainLock(int file) : file_(file) {}
  int file_;
};

}  // namespace attnscope
