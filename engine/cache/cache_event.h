// What happens to blocks, one event each, for logs and life lines: which block, why, in which step,
// for which request and group.
#pragma once

#include <cstdint>

namespace attnscope {

enum class CacheEventKind {
  kAllocate,  // taken from the front of the free queue
  kTouch,     // one more holder
  kFree,      // one holder less
  kUnhash,    // lost its keys
  kCache,     // got a key
  kHit,       // found by a lookup that led to an admission
  kMiss,      // a lookup ended before this entry
  kDrop,      // left a window; its table entry is null now
  kAdmit,     // a request joined the running ones
  kPreempt,   // a running request lost its blocks
  kFinish,
  kAbort,
  kSwapOut,  // its rows go to a block of host memory
  kSwapIn,   // and come from there
  kChunk,    // how long chunks of prefill may be in a step
};
inline constexpr int kCacheEventKinds = static_cast<int>(CacheEventKind::kChunk) + 1;
const char* cache_event_name(CacheEventKind kind);

enum class CacheReason {
  kNone,
  kGrow,      // room for tokens to come
  kExternal,  // room for tokens that come from elsewhere
  kAdopt,     // hit of an admitted request
  kWindow,    // no later token sees it
  kFinish,
  kPreempt,
  kAbort,
  kReuse,      // taken for new content
  kEvictCall,  // asked for by name
  kReset,      // the whole map was cleared
  kFull,       // every token of the block is known
  kPromptEnd,  // the prompt ends inside the block
  kOutOfBlocks,
  kSwap,  // the rows lie in host memory meanwhile
};
inline constexpr int kCacheReasons = static_cast<int>(CacheReason::kSwap) + 1;
const char* cache_reason_name(CacheReason reason);

// An allocation has three stages, in this order.
enum class AllocationStage {
  kNone,      // of no allocation: a request ends, a key is taken away
  kWindow,    // 1: what no later token sees is given back
  kPrefix,    // 2: blocks that were found are held, and room for rows from elsewhere is taken
  kNewBlocks  // 3: room for the tokens to come is taken, and full blocks get their keys
};

struct CacheEvent {
  CacheEventKind kind = CacheEventKind::kAllocate;
  CacheReason reason = CacheReason::kNone;
  std::int64_t step = -1;
  std::int64_t request = -1;  // -1 = of none
  std::int32_t group = -1;
  std::int32_t block = -1;
  std::int32_t refs = 0;  // holders afterwards
  // hit: tokens; miss: entry of the table; preempt: tokens to recompute; swap: block of the host;
  // chunk: tokens
  std::int64_t value = -1;
};

// A block that loses its key as it is taken counts with what it is taken for, new blocks.
AllocationStage allocation_stage(const CacheEvent& event);
const char* allocation_stage_name(AllocationStage stage);  // "1 window", "2 prefix", .., ""

class CacheObserver {
 public:
  virtual ~CacheObserver() = default;
  virtual void on_event(const CacheEvent& event) = 0;
};

}  // namespace attnscope
