// What a block manager is built from.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/cache/cache_switches.h"
#include "engine/cache/group_spec.h"
#include "kernels/params/result.h"

namespace attnscope {

struct KvOptions {
  std::vector<GroupSpec> groups;
  std::int64_t num_blocks = 0;   // null block included
  std::int64_t first_block = 1;  // the lowest id but the null block's, which is 0
  std::int64_t max_model_len = 8192;
  // Tokens that may be computed at a time: the budget of a step, or of all steps in flight.
  std::int64_t cap_tokens = 0;
  std::int64_t alignment = 0;   // 0: the least common multiple of the groups' blocks
  std::int64_t hash_block = 0;  // 0: their greatest common divisor
  bool caching = true;
  CacheSwitches switches;
  std::optional<std::int64_t> retention;  // nullopt: dense
  double watermark =
      0;  // share of the blocks that an admission beside running requests leaves free
};

// Fills in alignment and hash block. AS_BAD_INPUT names the option, what it is and what is allowed.
Result<KvOptions> check_options(KvOptions options);

}  // namespace attnscope
