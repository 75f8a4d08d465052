#include "engine/cache/cache_event.h"

#include <array>

namespace attnscope {

const char* cache_event_name(CacheEventKind kind) {
  constexpr std::array kNames = {"allocate", "touch", "free",  "unhash",  "cache",  "hit",
                                 "miss",     "drop",  "admit", "preempt", "finish", "abort"};
  return kNames[static_cast<std::size_t>(kind)];
}

const char* cache_reason_name(CacheReason reason) {
  constexpr std::array kNames = {"none",   "grow",       "external",   "adopt",        "window",
                                 "finish", "preempt",    "abort",      "reuse",        "evict_call",
                                 "reset",  "full_block", "prompt_end", "out_of_blocks"};
  return kNames[static_cast<std::size_t>(reason)];
}

}  // namespace attnscope
