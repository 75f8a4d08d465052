// The block manager's whole state as plain lists: what invariants compare before and after a call.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cache/kv_manager.h"

namespace attnscope {

struct KvSnapshot {
  std::vector<std::int32_t> refs;                 // by block
  std::vector<std::int32_t> queue;                // free blocks, front first
  std::vector<std::vector<PrefixKey>> keys;       // by block: primary, then further ones
  std::vector<std::vector<std::int32_t>> tables;  // by slot * groups + group
  std::vector<std::int64_t> cached;               // likewise
  std::int64_t free_count = 0;

  bool operator==(const KvSnapshot&) const = default;
};

KvSnapshot take_snapshot(const KvManager& kv);

// By block, whether it is in the queue.
std::vector<bool> queued(const KvSnapshot& state);

}  // namespace attnscope
