// The tokens that were pooled into a compressed entry.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/session/session.h"

namespace attnscope {

// A token pooled into an entry, with its pooling weight in one channel and over all.
struct PooledToken {
  std::int64_t position = 0;
  bool older_half = false;  // of a C4A entry: through the channels of the window before
  double weight = 0;        // softmax over the tokens, of this channel
  double mean_weight = 0;   // over all channels
  double value = 0;         // of this channel
  // Its score there, which the softmax is taken of: the gate's projection and the position bias of
  // the token's place in its window, of this half.
  double score = 0, ape = 0;
};
// Whether a cache is the indexer's own.
bool of_indexer(CacheId cache);

// Tokens of entry `entry` of a request in a running layer; from the rows that were written.
// index: the indexer's own keys.
Result<std::vector<PooledToken>> pooled_tokens(const Session& session, int running_layer,
                                               std::int32_t request, std::int64_t entry,
                                               std::int64_t channel, bool index);

}  // namespace attnscope
