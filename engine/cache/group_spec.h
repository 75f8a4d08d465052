// What the block manager knows of a cache group, and the arithmetic of its kind: which tokens no
// later token sees, how many blocks a request may hold at once. Layers and bytes are not its
// business.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/params/step_params.h"

namespace attnscope {

enum class GroupKind {
  kFull,     // a token sees all before it
  kSliding,  // a token sees `window` tokens, itself included
  kChunked,  // a token sees its own chunk of `window` tokens up to itself
  kFirst,    // there are rows of a request's first `window` tokens alone, seen by all behind them
};
const char* group_kind_name(GroupKind kind);  // "full", "swa", "chunked", "first"

struct GroupSpec {
  GroupKind kind = GroupKind::kFull;
  std::int32_t block_tokens = 16;
  std::int32_t window = 0;  // or chunk, or first tokens; 0 for full
  bool flagged = false;     // holds a draft model's layer: its hits lose their last block

  // What ops are told of it: the window, 0 for full, the chunk, negative, or as_reach_of_first().
  std::int32_t reach() const {
    if (kind == GroupKind::kFirst) return as_reach_of_first(window);
    return kind == GroupKind::kChunked ? -window : window;
  }
  // How many of a request's first tokens have rows.
  std::int64_t with_rows(std::int64_t tokens) const {
    return kind == GroupKind::kFirst ? std::min<std::int64_t>(tokens, window) : tokens;
  }
  // Whether rows are given back before their request ends.
  bool forgets() const { return kind == GroupKind::kSliding || kind == GroupKind::kChunked; }
  // The first token that one at this position sees.
  std::int64_t first_seen(std::int64_t position) const;
  // Whether a lookup treats both alike; the flag is the lookup's business.
  bool same_kind(const GroupSpec& other) const {
    return kind == other.kind && block_tokens == other.block_tokens && window == other.window;
  }
};

// Token counts stay below 2^31 (a request's length is checked where it is added): 32-bit division.
inline std::int64_t blocks_floor(std::int64_t tokens, std::int64_t block_tokens) {
  return static_cast<std::uint32_t>(tokens) / static_cast<std::uint32_t>(block_tokens);
}
inline std::int64_t blocks_ceil(std::int64_t tokens, std::int64_t block_tokens) {
  return blocks_floor(tokens + block_tokens - 1, block_tokens);
}

// Blocks of a group that hold the rows of so many tokens, and those that these fill.
inline std::int64_t blocks_for(const GroupSpec& spec, std::int64_t tokens) {
  return blocks_ceil(spec.with_rows(tokens), spec.block_tokens);
}
inline std::int64_t full_blocks(const GroupSpec& spec, std::int64_t tokens) {
  return blocks_floor(spec.with_rows(tokens), spec.block_tokens);
}

// Leading tokens that the token after `computed` ones does not see.
inline std::int64_t skipped_tokens(const GroupSpec& spec, std::int64_t computed) {
  switch (spec.kind) {
    case GroupKind::kSliding:
      return std::max<std::int64_t>(computed - spec.window + 1, 0);
    case GroupKind::kChunked:
      return blocks_floor(computed, spec.window) * spec.window;
    case GroupKind::kFull:
    case GroupKind::kFirst:
      break;
  }
  return 0;
}

inline std::int64_t GroupSpec::first_seen(std::int64_t position) const {
  return skipped_tokens(*this, position);
}

// Blocks that hold all that a token sees before itself, and one more for a draft.
inline std::int64_t window_blocks(const GroupSpec& spec, bool draft) {
  return blocks_ceil(spec.window - 1, spec.block_tokens) + (draft ? 1 : 0);
}

// Most blocks a request can hold when up to `batch` tokens are computed at a time; -1: no limit
// but its length. A window may start in the middle of a block: one more.
inline std::int64_t admission_cap(const GroupSpec& spec, std::int64_t batch,
                                  std::int64_t max_model_len) {
  switch (spec.kind) {
    case GroupKind::kSliding:
      return blocks_ceil(std::min(spec.window - 1 + batch, max_model_len), spec.block_tokens) + 1;
    case GroupKind::kChunked:
      return blocks_ceil(std::min(spec.window + batch, max_model_len), spec.block_tokens);
    case GroupKind::kFirst:
      return blocks_for(spec, max_model_len);
    case GroupKind::kFull:
      break;
  }
  return -1;
}

}  // namespace attnscope
