#include "engine/cache/free_queue.h"

namespace attnscope {

FreeQueue::FreeQueue(std::int64_t num_blocks, std::int32_t first)
    : links_(static_cast<std::size_t>(num_blocks) + 1),
      sentinel_(static_cast<std::int32_t>(num_blocks)) {
  at(sentinel_) = {sentinel_, sentinel_};
  for (std::int32_t id = first; id < sentinel_; ++id) append(id);
}

void FreeQueue::prepend(std::span<const std::int32_t> ids) {
  std::int32_t place = sentinel_;
  for (const std::int32_t id : ids) {
    insert_after(place, id);
    place = id;
  }
}

void FreeQueue::append(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) append(id);
}

std::vector<std::int32_t> FreeQueue::ids() const {
  std::vector<std::int32_t> out;
  out.reserve(static_cast<std::size_t>(size_));
  for (std::int32_t id = front(); id != sentinel_; id = next(id)) out.push_back(id);
  return out;
}

bool FreeQueue::consistent() const {
  // Bounded by the number of links: a broken list may have a loop.
  std::int64_t seen = 0;
  std::int32_t id = sentinel_;
  do {
    const std::int32_t after = at(id).next;
    if (after < 0 || after > sentinel_ || at(after).prev != id) return false;
    id = after;
    if (++seen > static_cast<std::int64_t>(links_.size())) return false;
  } while (id != sentinel_);
  return seen == size_ + 1;
}

}  // namespace attnscope
