// Why a value came out: everything that could have contributed to one element of an attention
// output, who wrote a slot, and the tokens pooled into an entry.
//
// The session stands on the op that ran last (place.h: go_to).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/session.h"

namespace attnscope {

// One thing that could have contributed to o[token, head, dim].
struct Contribution {
  std::string kind;       // "window", "entry", "sink"
  std::string status;     // "contributed", "masked", "null", "not selected", "never written"
  std::int64_t row = -1;  // position (window) or entry of the request
  std::int64_t block = -1, slot = -1;
  std::string bytes;  // code and scale byte, or bf16 bits, of this dim; hexadecimal
  double value = 0;   // decoded
  double logit = 0, weight = 0;
  double partial = 0;  // weight * value
  // Entries that were not selected: rank among all visible scores (0 = best), and how far below
  // the worst selected score.
  std::int64_t rank = -1;
  double margin = 0;
};

struct ValueHistory {
  std::int64_t token = 0, head = 0, dim = 0;
  std::int32_t request = -1;
  std::int64_t position = 0;
  double sum = 0;                           // of the partial outputs
  double output = 0;                        // the op's own element
  double reference = 0;                     // ref.sim's, NaN where none ran
  std::vector<Contribution> contributions;  // window, entries, sink; then what was not read
};

// Of sparse_attention, which must be the op that ran last. scores: of the layer's indexer, as
// gathered by ScoreKeeper; empty where there are none.
struct KeptScores {
  int layer = -2;                          // published
  std::vector<std::vector<float>> scores;  // [T][visible]
};
Result<ValueHistory> value_history(const Session& session, std::int64_t token, std::int64_t head,
                                   std::int64_t dim, const KeptScores& scores);

// Scores of the op that ran last, when it is indexer_logits; false when it is not.
bool keep_scores(const Session& session, KeptScores* kept);

// A token pooled into an entry, with its pooling weight in one channel and over all.
struct PooledToken {
  std::int64_t position = 0;
  bool older_half = false;  // of a C4A entry: through the channels of the window before
  double weight = 0;        // softmax over the tokens, of this channel
  double mean_weight = 0;   // over all channels
  double value = 0;         // of this channel
};
// Tokens of entry `entry` of a request in a running layer; from the rows that were written.
// index: the indexer's own keys.
Result<std::vector<PooledToken>> pooled_tokens(const Session& session, int running_layer,
                                               std::int32_t request, std::int64_t entry,
                                               std::int64_t channel, bool index);

}  // namespace attnscope
