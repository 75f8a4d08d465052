// A request as the block manager sees it: its tokens and their hashes, how far it is computed, and
// which row of the manager's tables is its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/cache/block_hash.h"

namespace attnscope {

struct KvRequest {
  std::int32_t slot = -1;  // of the manager's tables; reused after the request's end
  std::int64_t id = -1;
  std::vector<std::int32_t> tokens;  // prompt, then sampled ones
  std::int64_t prompt_tokens = 0;
  std::int64_t computed = 0;   // tokens whose rows are in the caches, or will be after this step
  std::int64_t in_flight = 0;  // of these, tokens of steps whose results are not in
  bool skip_lookup = false;    // wants what only computing gives (logprobs of the prompt)
  HashExtras extras;
  HashChain chain;                     // of hash_block tokens
  std::optional<std::int64_t> shared;  // tokens that one group's hit had beyond the joint hit

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
};

}  // namespace attnscope
