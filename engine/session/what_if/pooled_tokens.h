// The tokens that an entry of a cache is made of, where a row stands for several. A family of
// models says so of its caches; rows of one without are a token each.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/session/session.h"

namespace attnscope {

// A token pooled into an entry, with its pooling weight in one channel and over all.
struct PooledToken {
  std::int64_t position = 0;
  bool older_half = false;  // through the channels of the window before, where windows overlap
  double weight = 0;        // softmax over the tokens, of this channel
  double mean_weight = 0;   // over all channels
  double value = 0;         // of this channel
  // Its score there, which the softmax is taken of: the gate's projection and the position bias of
  // the token's place in its window, of this half.
  double score = 0, ape = 0;
};

// Of a family, entered in pooled_tokens.cpp.
struct FamilyEntries {
  const char* family;
  // Whether a cache is what selecting reads, not attention.
  bool (*of_selection)(CacheId cache);
  Result<std::vector<PooledToken>> (*tokens)(const Session& session, int running_layer,
                                             std::int32_t request, std::int64_t entry,
                                             std::int64_t channel, bool of_selection);
};

// Whether a cache of this model is one that selecting reads.
bool read_to_select(const ModelConfig& config, CacheId cache);

// Tokens of entry `entry` of a request in a running layer; from the rows that were written.
// of_selection: of the keys by which entries are selected. An error says that the layer has no such
// entries, or not yet.
Result<std::vector<PooledToken>> pooled_tokens(const Session& session, int running_layer,
                                               std::int32_t request, std::int64_t entry,
                                               std::int64_t channel, bool of_selection);

}  // namespace attnscope
