// Free block ids in order of reuse: a doubly linked list threaded through one array by id. Every
// operation on one id costs the same whatever the size of the pool, and none allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attnscope {

class FreeQueue {
 public:
  // Ids first..num_blocks-1 in ascending order; ids below `first` are never in the queue.
  explicit FreeQueue(std::int64_t num_blocks, std::int32_t first = 0);

  std::int64_t size() const { return size_; }
  bool contains(std::int32_t id) const { return at(id).next != kOut; }
  std::int32_t front() const { return at(sentinel_).next; }  // sentinel() when empty
  std::int32_t back() const { return at(sentinel_).prev; }
  std::int32_t sentinel() const { return sentinel_; }
  std::int32_t next(std::int32_t id) const { return at(id).next; }
  std::int32_t prev(std::int32_t id) const { return at(id).prev; }

  std::int32_t pop_front() {  // size() > 0
    const std::int32_t id = front();
    remove(id);
    return id;
  }
  void append(std::int32_t id) { insert_after(back(), id); }
  void remove(std::int32_t id) {  // contains(id)
    Link& link = at(id);
    at(link.prev).next = link.next;
    at(link.next).prev = link.prev;
    link = {kOut, kOut};
    --size_;
  }
  // `place`: an id in the queue, or sentinel() for the front.
  void insert_after(std::int32_t place, std::int32_t id) {
    Link& before = at(place);
    at(id) = {before.next, place};
    at(before.next).prev = id;
    before.next = id;
    ++size_;
  }
  // In the order given; ahead of everything, or behind it.
  void prepend(std::span<const std::int32_t> ids);
  void append(std::span<const std::int32_t> ids);

  std::vector<std::int32_t> ids() const;  // front first
  // Same ids forward and backward, as many as counted.
  bool consistent() const;

 private:
  static constexpr std::int32_t kOut = -1;
  struct Link {
    std::int32_t next = kOut;
    std::int32_t prev = kOut;
  };
  Link& at(std::int32_t id) { return links_[static_cast<std::size_t>(id)]; }
  const Link& at(std::int32_t id) const { return links_[static_cast<std::size_t>(id)]; }

  std::vector<Link> links_;  // the last one is the sentinel: its next is the front, prev the tail
  std::int32_t sentinel_;
  std::int64_t size_ = 0;
};

}  // namespace attnscope
