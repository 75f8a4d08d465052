// The tokens pooled into an entry, as somebody asks for them and as the session's thread answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/what_if/pooled_tokens.h"
#include "kernels/params/row_format.h"

namespace attnscope {

// An entry of a layer of a session: of the attention's keys, or of the indexer's own.
struct PooledOf {
  int layer = -1;  // published
  std::int32_t request = -1;
  std::int64_t entry = -1, channel = 0;
  bool index = false;
  friend bool operator==(const PooledOf&, const PooledOf&) = default;
};
struct PooledTokens {
  PooledOf of;
  std::vector<PooledToken> tokens;
  std::string why_empty;  // not empty: there is no such entry, for this reason
  // The entry's row among the index keys; empty where the layer selects nothing.
  std::vector<std::uint8_t> index_key;
  std::int32_t record = 0;
};

}  // namespace attnscope
