#include "reference/torch/kept_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <new>
#include <unordered_set>
#include <vector>

namespace attnscope::reference {
namespace {

// Before the numbers, which lie at multiples of 64 bytes.
struct alignas(64) Head {
  std::size_t kind;
  std::uint64_t since;  // of one that nobody has: a number that grows
};

// Sizes of blocks: four to a power of two, so that at most a fifth of one lies idle.
constexpr int kSteps = 2;
constexpr std::size_t kKinds = (26 - 16) * (1 << kSteps) + 1;
constexpr std::size_t kNear = 3;  // kinds that do for a block, its own and larger ones

std::size_t kind_of(std::size_t bytes) {
  const int power = std::bit_width(bytes - 1);                   // half of it is less than bytes
  const std::size_t part = (bytes - 1) >> (power - 1 - kSteps);  // 4 to 7
  return (static_cast<std::size_t>(power - 16) << kSteps) + part + 1 - (2 << kSteps);
}

std::size_t bytes_of_kind(std::size_t kind) {
  const std::size_t part = (1 << kSteps) + (kind & ((1 << kSteps) - 1));
  return part << ((kind >> kSteps) + 16 - kSteps);
}

class KeptMemory : public c10::Allocator {
 public:
  // Of libtorch before 2.3, and from then on.
  c10::DataPtr allocate(std::size_t bytes) const { return take(bytes); }
  c10::DataPtr allocate(std::size_t bytes) { return take(bytes); }
  // Of what raw_allocate() gave, large or small: libraries below libtorch ask that way.
  c10::DeleterFnPtr raw_deleter() const override { return let_go_of_any; }
  // From 2.2 on.
  void copy_data(void* to, const void* from, std::size_t bytes) const {
    std::memcpy(to, from, bytes);
  }

 private:
  static c10::DataPtr take(std::size_t bytes) {
    if (bytes < kLeastKept || bytes > kMostKept) return own().allocate(bytes);
    const std::size_t kind = kind_of(bytes);
    Head* head = ready().take(kind);
    if (head == nullptr) {
      head = fresh(kind);
      ready().lend(head);
    }
    // Where the numbers lie is all that raw_allocate() tells who asks by it.
    return {head + 1, head + 1, let_go, c10::Device(c10::kCPU)};
  }

  static void let_go(void* numbers) {
    for (Head* head : ready().put(static_cast<Head*>(numbers) - 1)) {
      ::munmap(head, sizeof(Head) + bytes_of_kind(head->kind));
    }
  }
  static void let_go_of_any(void* numbers) {
    ready().has_lent(numbers) ? let_go(numbers) : own().raw_deallocate(numbers);
  }

  static Head* fresh(std::size_t kind) {
    const std::size_t bytes = sizeof(Head) + bytes_of_kind(kind);
    void* block =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc();
    return new (block) Head{kind, 0};
  }

  // Blocks that nobody has, and which somebody has.
  class Ready {
   public:
    // One of this kind, or of a little larger one. Null: there is none.
    Head* take(std::size_t kind) {
      const std::lock_guard lock(mutex_);
      for (std::size_t k = kind; k < std::min(kind + kNear, kKinds); ++k) {
        if (blocks_[k].empty()) continue;
        Head* block = blocks_[k].back();  // the newest may still be in a cache
        blocks_[k].pop_back();
        bytes_ -= bytes_of_kind(k);
        lent_.insert(block + 1);
        return block;
      }
      return nullptr;
    }
    void lend(Head* block) {
      const std::lock_guard lock(mutex_);
      lent_.insert(block + 1);
    }
    bool has_lent(const void* numbers) {
      const std::lock_guard lock(mutex_);
      return lent_.contains(numbers);
    }

    // Those that there is no room for any more: the oldest.
    std::vector<Head*> put(Head* block) {
      std::vector<Head*> gone;
      const std::lock_guard lock(mutex_);
      lent_.erase(block + 1);
      block->since = ++puts_;
      blocks_[block->kind].push_back(block);
      bytes_ += bytes_of_kind(block->kind);
      while (bytes_ > kKeptBytes) {
        const auto age = [](const std::deque<Head*>& blocks) {
          return blocks.empty() ? std::numeric_limits<std::uint64_t>::max() : blocks.front()->since;
        };
        std::deque<Head*>& oldest = *std::ranges::min_element(blocks_, {}, age);
        gone.push_back(oldest.front());
        oldest.pop_front();
        bytes_ -= bytes_of_kind(gone.back()->kind);
      }
      return gone;
    }

   private:
    std::mutex mutex_;
    std::array<std::deque<Head*>, kKinds> blocks_;
    std::unordered_set<const void*> lent_;  // where numbers lie of those that somebody has
    std::size_t bytes_ = 0;
    std::uint64_t puts_ = 0;
  };

  // Neither is ever destroyed: tensors may outlive what this library has.
  static Ready& ready() {
    static Ready& all = *new Ready;
    return all;
  }
  static c10::Allocator& own() {
    static c10::Allocator& libtorch = *c10::GetDefaultCPUAllocator();
    return libtorch;
  }
};

}  // namespace

void keep_tensor_memory() {
  static KeptMemory& memory = *new KeptMemory;
  c10::SetCPUAllocator(&memory, 1);
}

}  // namespace attnscope::reference
