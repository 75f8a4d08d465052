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
};
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
};
const char* cache_reason_name(CacheReason reason);

struct CacheEvent {
  CacheEventKind kind = CacheEventKind::kAllocate;
  CacheReason reason = CacheReason::kNone;
  std::int64_t step = -1;
  std::int64_t request = -1;  // -1 = of none
  std::int32_t group = -1;
  std::int32_t block = -1;
  std::int32_t refs = 0;    // holders afterwards
  std::int64_t value = -1;  // hit: tokens; miss: entry of the table; preempt: tokens to recompute
};

class CacheObserver {
 public:
  virtual ~CacheObserver() = default;
  virtual void on_event(const CacheEvent& event) = 0;
};

}  // namespace attnscope
