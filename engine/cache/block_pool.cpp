#include "engine/cache/block_pool.h"

namespace attnscope {
namespace {

constexpr std::uint8_t kNoKey = 0;
constexpr std::uint8_t kFullKey = 1;
constexpr std::uint8_t kPromptEndKey = 2;

}  // namespace

BlockPool::BlockPool(std::int64_t num_blocks, bool caching, FreeOrder order, std::int64_t first)
    : first_(static_cast<std::int32_t>(first)),
      caching_(caching),
      order_(order),
      refs_(static_cast<std::size_t>(first - 1 + num_blocks), 0),
      hashed_(refs_.size(), kNoKey),
      queue_(end_block(), first_),
      map_(caching ? end_block() : 0) {}

double BlockPool::usage() const {
  return usable() == 0 ? 0.0
                       : 1.0 - static_cast<double>(num_free()) / static_cast<double>(usable());
}

void BlockPool::tell(CacheEventKind kind, std::int32_t block, CacheReason reason,
                     std::int64_t value) const {
  if (observer_ == nullptr) return;
  observer_->on_event({kind, reason, context.step, context.request, context.group, block,
                       block < 0 ? 0 : refs_[index(block)], value});
}

bool BlockPool::get(std::int64_t n, std::vector<std::int32_t>& out) {
  if (n > queue_.size()) return false;
  for (; n > 0; --n) {
    const std::int32_t block = queue_.pop_front();
    if (hashed_[index(block)] != kNoKey) {
      --free_with_key_;
      ++evictions_;
      unhash(block, CacheReason::kReuse);
    }
    refs_[index(block)] = 1;
    out.push_back(block);
    tell(CacheEventKind::kAllocate, block, context.reason);
  }
  return true;
}

void BlockPool::touch(std::span<const std::int32_t> blocks) {
  for (const std::int32_t block : blocks) {
    if (block == kNullBlock) continue;
    if (refs_[index(block)]++ == 0) {
      queue_.remove(block);
      if (hashed_[index(block)] != kNoKey) --free_with_key_;
    }
    tell(CacheEventKind::kTouch, block, context.reason);
  }
}

void BlockPool::release(std::span<const std::int32_t> blocks) {
  std::int32_t place = queue_.sentinel();  // after it comes the next one freed to the front
  for (const std::int32_t block : blocks) {
    if (block == kNullBlock) continue;
    const std::int32_t refs = --refs_[index(block)];
    tell(CacheEventKind::kFree, block, context.reason);
    if (refs > 0) continue;
    if (queue_.contains(block)) continue;
    const bool hashed = hashed_[index(block)] != kNoKey;
    free_with_key_ += hashed ? 1 : 0;
    const bool front =
        caching_ ? order_ != FreeOrder::kAppend && !hashed : order_ == FreeOrder::kLifoWhenUncached;
    if (front) {
      queue_.insert_after(place, block);
      place = block;
    } else {
      queue_.append(block);
    }
  }
}

void BlockPool::cache(std::int32_t block, const BlockHash& hash, std::int32_t group) {
  if (hashed_[index(block)] != kNoKey) forget_primary(block);
  map_.set_primary(block, {hash, group});
  hashed_[index(block)] = kFullKey;
  tell(CacheEventKind::kCache, block, CacheReason::kFull);
}

bool BlockPool::cache_prompt_end(std::int32_t block, const BlockHash& hash, std::int32_t group) {
  const PrefixKey key{hash, group};
  if (map_.has_key(block, key)) return false;
  if (hashed_[index(block)] == kNoKey) {
    map_.set_primary(block, key);
    hashed_[index(block)] = kPromptEndKey;
  } else {
    map_.add_secondary(block, key);
  }
  tell(CacheEventKind::kCache, block, CacheReason::kPromptEnd);
  return true;
}

void BlockPool::forget_primary(std::int32_t block) {
  if (keep_removed_) removed_.push_back(map_.primary(block));
  map_.erase_primary(block);
}

bool BlockPool::unhash(std::int32_t block, CacheReason reason) {
  if (hashed_[index(block)] == kNoKey) return false;
  forget_primary(block);
  if (map_.has_secondary(block)) {
    if (keep_removed_) {
      for (const PrefixKey& key : map_.secondaries(block)) removed_.push_back(key);
    }
    map_.erase_secondaries(block);
  }
  hashed_[index(block)] = kNoKey;
  tell(CacheEventKind::kUnhash, block, reason);
  return true;
}

bool BlockPool::evict(std::span<const std::int32_t> blocks) {
  for (const std::int32_t block : blocks) {
    if (block != kNullBlock && (block < first_ || block >= end_block())) return false;
  }
  for (const std::int32_t block : blocks) {
    const bool free = queue_.contains(block);
    if (unhash(block, CacheReason::kEvictCall) && free) --free_with_key_;
  }
  return true;
}

bool BlockPool::reset() {
  if (num_free() != usable()) return false;
  if (caching_) map_.clear();
  if (observer_ != nullptr) {
    for (std::int32_t b = first_; b < end_block(); ++b) {
      if (hashed_[index(b)] != kNoKey) tell(CacheEventKind::kUnhash, b, CacheReason::kReset);
    }
  }
  hashed_.assign(hashed_.size(), kNoKey);
  free_with_key_ = 0;
  return true;
}

}  // namespace attnscope
