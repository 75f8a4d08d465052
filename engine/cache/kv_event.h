// The stream of events by which a serving engine tells others which content its cache holds:
// blocks stored, removed, all cleared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnscope {

enum class KvEventKind { kBlockStored, kBlockRemoved, kAllBlocksCleared };

struct KvEvent {
  KvEventKind kind = KvEventKind::kAllBlocksCleared;
  std::vector<std::string> hashes;    // hex digits, or what a foreign stream had
  std::optional<std::string> parent;  // of the first hash; none: it starts the request
  std::vector<std::int32_t> tokens;
  std::int64_t block_tokens = 0;
  std::string adapter;
  std::string medium = "GPU";
  std::int32_t group = -1;  // -1 = not said
  std::string spec_kind;    // "full_attention", "sliding_window", "chunked_local_attention"
  std::int64_t window = 0;  // 0 = none
};

}  // namespace attnscope
