// Streams of cache events as serving engines publish them (BlockStored, BlockRemoved,
// AllBlocksCleared), as JSON or MessagePack: one batch, a list of batches, or JSON Lines. A batch
// is [time, [events], rank] or {"ts", "events", "data_parallel_rank"}; an event an object with
// "type" or a list that begins with its name:
//
//   BlockStored       block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium,
//                     lora_name, extra_keys, group_idx, kv_cache_spec_kind,
//                     kv_cache_spec_sliding_window
//   BlockRemoved      block_hashes, medium, group_idx
//   AllBlocksCleared
//
// Hashes are integers, texts or bytes. Trailing fields of lists may be missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cache/kv_event.h"
#include "kernels/params/result.h"

namespace attnscope {

struct KvEventBatch {
  double time = 0;
  std::int64_t rank = -1;  // -1 = not said
  std::vector<KvEvent> events;
};

// Format by content. The whole stream is read before there is a result; messages name the line or
// batch and the event.
Result<std::vector<KvEventBatch>> parse_kv_events(const std::string& bytes,
                                                  const std::string& name);
// One batch as a line of JSON that parse_kv_events reads.
std::string kv_events_json(const KvEventBatch& batch);

}  // namespace attnscope
