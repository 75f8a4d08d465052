#include "engine/cache/free_list.h"

#include <cassert>

namespace attnscope {

FreeList::FreeList(std::int64_t num_blocks, std::int32_t first)
    : next_(static_cast<std::size_t>(num_blocks) + 1, kOut),
      prev_(static_cast<std::size_t>(num_blocks) + 1, kOut),
      sentinel_(static_cast<std::int32_t>(num_blocks)) {
  next_[index(sentinel_)] = sentinel_;
  prev_[index(sentinel_)] = sentinel_;
  for (std::int32_t id = first; id < sentinel_; ++id) push_back(id);
}

std::int32_t FreeList::pop_front() {
  assert(size_ > 0);
  const std::int32_t id = next_[index(sentinel_)];
  remove(id);
  return id;
}

void FreeList::push_back(std::int32_t id) {
  assert(!contains(id));
  const std::int32_t tail = prev_[index(sentinel_)];
  next_[index(tail)] = id;
  prev_[index(id)] = tail;
  next_[index(id)] = sentinel_;
  prev_[index(sentinel_)] = id;
  ++size_;
}

void FreeList::remove(std::int32_t id) {
  assert(contains(id));
  const std::int32_t before = prev_[index(id)];
  const std::int32_t after = next_[index(id)];
  next_[index(before)] = after;
  prev_[index(after)] = before;
  next_[index(id)] = kOut;
  prev_[index(id)] = kOut;
  --size_;
}

std::vector<std::int32_t> FreeList::ids() const {
  std::vector<std::int32_t> out;
  out.reserve(static_cast<std::size_t>(size_));
  for (std::int32_t id = next_[index(sentinel_)]; id != sentinel_; id = next_[index(id)]) {
    out.push_back(id);
  }
  return out;
}

}  // namespace attnscope
