// Free block ids in order: an intrusive doubly linked list over arrays. Taking from the front,
// appending at the tail and removing from the middle are O(1), whatever the size of the pool.
#pragma once

#include <cstdint>
#include <vector>

namespace attnscope {

class FreeList {
 public:
  // Ids first..num_blocks-1 in ascending order; ids below `first` are never in the list.
  FreeList(std::int64_t num_blocks, std::int32_t first);

  std::int64_t size() const { return size_; }
  bool contains(std::int32_t id) const { return next_[index(id)] != kOut; }
  std::int32_t pop_front();  // size() > 0
  void push_back(std::int32_t id);
  void remove(std::int32_t id);
  std::vector<std::int32_t> ids() const;  // front first

 private:
  static constexpr std::int32_t kOut = -1;
  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }

  // The last entry of both arrays is the sentinel: its next is the front, its prev the tail.
  std::vector<std::int32_t> next_;
  std::vector<std::int32_t> prev_;
  std::int32_t sentinel_;
  std::int64_t size_ = 0;
};

}  // namespace attnscope
