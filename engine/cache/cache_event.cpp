#include "engine/cache/cache_event.h"

#include <array>

namespace attnscope {

const char* cache_event_name(CacheEventKind kind) {
  constexpr std::array kNames = {"allocate", "touch", "free",     "unhash",  "cache",
                                 "hit",      "miss",  "drop",     "admit",   "preempt",
                                 "finish",   "abort", "swap_out", "swap_in", "chunk"};
  static_assert(kNames.size() == kCacheEventKinds);
  return kNames[static_cast<std::size_t>(kind)];
}

const char* cache_reason_name(CacheReason reason) {
  constexpr std::array kNames = {"none",       "grow",          "external", "adopt",
                                 "window",     "finish",        "preempt",  "abort",
                                 "reuse",      "evict_call",    "reset",    "full_block",
                                 "prompt_end", "out_of_blocks", "swap"};
  static_assert(kNames.size() == kCacheReasons);
  return kNames[static_cast<std::size_t>(reason)];
}

AllocationStage allocation_stage(const CacheEvent& event) {
  switch (event.reason) {
    case CacheReason::kWindow:
      return AllocationStage::kWindow;
    case CacheReason::kAdopt:
    case CacheReason::kExternal:
      return AllocationStage::kPrefix;
    case CacheReason::kGrow:
    case CacheReason::kReuse:
    case CacheReason::kFull:
    case CacheReason::kPromptEnd:
      return AllocationStage::kNewBlocks;
    default:
      return AllocationStage::kNone;
  }
}

const char* allocation_stage_name(AllocationStage stage) {
  constexpr std::array kNames = {"", "1 window", "2 prefix", "3 new blocks"};
  return kNames[static_cast<std::size_t>(stage)];
}

}  // namespace attnscope
