// A whole file as read-only memory, paged in as it is touched. Copies share the mapping; it lives
// as long as one of them. A file that is replaced by rename stays as it was for those who mapped
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/params/result.h"

namespace attnscope {

class MappedFile {
 public:
  MappedFile() = default;
  // AS_BAD_INPUT when missing, unreadable or not a plain file. An empty file is an empty span.
  static Result<MappedFile> open(const std::string& path);

  std::span<const std::uint8_t> bytes() const {
    return {static_cast<const std::uint8_t*>(memory_.get()), size_};
  }
  // Keeps the mapping alive.
  const std::shared_ptr<const void>& owner() const { return memory_; }

 private:
  std::shared_ptr<const void> memory_;
  std::size_t size_ = 0;
};

}  // namespace attnscope
