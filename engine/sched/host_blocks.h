// Blocks of host memory in which rows of preempted requests wait: which are free. The lowest ids
// are taken first. A plain value.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace attnscope {

class HostBlocks {
 public:
  explicit HostBlocks(std::int64_t blocks = 0) : size_(blocks) {
    for (std::int64_t b = 0; b < blocks; ++b) free_.insert(static_cast<std::int32_t>(b));
  }

  std::int64_t size() const { return size_; }
  std::int64_t num_free() const { return static_cast<std::int64_t>(free_.size()); }
  bool is_free(std::int32_t block) const { return free_.contains(block); }
  // So many are free.
  std::vector<std::int32_t> take(std::int64_t n) {
    std::vector<std::int32_t> out;
    for (; n > 0; --n) out.push_back(free_.extract(free_.begin()).value());
    return out;
  }
  void give_back(std::span<const std::int32_t> blocks) {
    free_.insert(blocks.begin(), blocks.end());
  }

 private:
  std::int64_t size_;
  std::set<std::int32_t> free_;
};

}  // namespace attnscope
