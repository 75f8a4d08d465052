// All blocks of a cache: who holds how many references, which are free in which order, which
// content is findable. Block 0 is the null block: never held, never free, never with a key. The ids
// of the others may begin anywhere above it; ids between do not exist.
//
// A free block keeps its keys until it is taken for new content, so that it can still be hit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/cache_event.h"
#include "engine/cache/cache_switches.h"
#include "engine/cache/free_queue.h"
#include "engine/cache/prefix_map.h"

namespace attnscope {

inline constexpr std::int32_t kNullBlock = 0;

class BlockPool {
 public:
  // num_blocks: null block included. first: the lowest id of the others.
  BlockPool(std::int64_t num_blocks, bool caching, FreeOrder order, std::int64_t first = 1);

  std::int64_t num_blocks() const { return end_block() - first_ + 1; }  // null block included
  std::int64_t usable() const { return end_block() - first_; }          // and without it
  std::int32_t first_block() const { return first_; }
  std::int32_t end_block() const { return static_cast<std::int32_t>(refs_.size()); }  // ids below
  std::int64_t num_free() const { return queue_.size(); }
  bool caching() const { return caching_; }
  std::int32_t refs(std::int32_t block) const { return refs_[index(block)]; }
  bool hashed(std::int32_t block) const { return hashed_[index(block)] != 0; }
  std::int64_t free_with_key() const { return free_with_key_; }
  std::int64_t num_keys() const { return caching_ ? map_.num_keys() : 0; }
  std::int64_t evictions() const { return evictions_; }  // blocks that lost their keys to reuse
  double usage() const;                                  // held share of the usable blocks
  const FreeQueue& queue() const { return queue_; }
  const PrefixMap& map() const { return map_; }

  // The oldest block with this content; -1 = none.
  std::int32_t find(const BlockHash& hash, std::int32_t group) const {
    return map_.find(hash, group);
  }

  // Appends n blocks from the front of the queue to `out`. False, with nothing changed, when there
  // are fewer.
  bool get(std::int64_t n, std::vector<std::int32_t>& out);
  // One more holder each; null blocks are passed over.
  void touch(std::span<const std::int32_t> blocks);
  // One holder less each, in the order given; null blocks are passed over.
  void release(std::span<const std::int32_t> blocks);

  // Makes a held block findable. A shorter primary key (of a prompt's end) gives way.
  void cache(std::int32_t block, const BlockHash& hash, std::int32_t group);
  // The same for a prompt's end inside the block; false where the block has this key already.
  bool cache_prompt_end(std::int32_t block, const BlockHash& hash, std::int32_t group);
  // Takes the keys away; references and order stay. False for an id that the pool does not have,
  // with nothing changed.
  bool evict(std::span<const std::int32_t> blocks);
  // Forgets all content. False, with nothing changed, while a block is held.
  bool reset();

  // What events say besides the block.
  struct Context {
    std::int64_t step = -1;
    std::int64_t request = -1;
    std::int32_t group = -1;
    CacheReason reason = CacheReason::kNone;
  };
  Context context;
  void set_observer(CacheObserver* observer) { observer_ = observer; }
  CacheObserver* observer() const { return observer_; }
  void tell(CacheEventKind kind, std::int32_t block, CacheReason reason,
            std::int64_t value = -1) const;
  // Keys that blocks lost, in order; only kept while asked for.
  void keep_removed(bool keep) { keep_removed_ = keep; }
  std::vector<PrefixKey>& removed() { return removed_; }

 private:
  static std::size_t index(std::int32_t block) { return static_cast<std::size_t>(block); }
  bool unhash(std::int32_t block, CacheReason reason);
  void forget_primary(std::int32_t block);

  std::int32_t first_;
  bool caching_;
  FreeOrder order_;
  bool keep_removed_ = false;
  std::vector<std::int32_t> refs_;
  std::vector<std::uint8_t> hashed_;  // 0 none, 1 a full block's key, 2 only a prompt's end
  FreeQueue queue_;
  PrefixMap map_;
  std::int64_t free_with_key_ = 0;
  std::int64_t evictions_ = 0;
  CacheObserver* observer_ = nullptr;
  std::vector<PrefixKey> removed_;
};

}  // namespace attnscope
