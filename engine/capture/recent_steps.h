// What was read of some steps last, so that who asks for each step at every op reads it once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace attnscope {

// T has a member `step`. Calls from several threads do not disturb one another.
template <class T>
class RecentSteps {
 public:
  explicit RecentSteps(std::size_t most) : most_(most) {}

  // Null where it is not kept.
  std::shared_ptr<const T> find(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    const auto it =
        std::ranges::find_if(items_, [&](const auto& item) { return item->step == step; });
    if (it == items_.end()) return nullptr;
    std::rotate(items_.begin(), it, it + 1);
    return items_.front();
  }

  // In the place of the one that was asked for longest ago where there are too many.
  void keep(std::shared_ptr<const T> item) {
    const std::lock_guard lock(mutex_);
    if (items_.size() == most_) items_.pop_back();
    items_.insert(items_.begin(), std::move(item));
  }

 private:
  const std::size_t most_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const T>> items_;  // newest first
};

}  // namespace attnscope
