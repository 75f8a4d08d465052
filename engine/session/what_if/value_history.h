// Why a value came out: everything that could have contributed to one element of an attention
// output.
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
  std::string kind;       // "window", "row" where no window ends, "entry", "sink"
  std::string status;     // "contributed", "masked", "null", "not selected", "never written"
  std::int64_t row = -1;  // position or entry of the request
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
  double sum = 0;        // of the partial outputs
  double output = 0;     // the op's own element
  double reference = 0;  // ref.sim's, NaN where none ran
  // Rows of tokens, entries, the sink where the layer has some; then what was not read.
  std::vector<Contribution> contributions;
};

// Of sparse_attention, which must be the op that ran last. scores: of the layer's indexer, as
// gathered by ScoreKeeper; empty where there are none.
struct KeptScores {
  int layer = -2;                          // published
  std::vector<std::vector<float>> scores;  // [T][visible]
};
Result<ValueHistory> value_history(const Session& session, std::int64_t token, std::int64_t head,
                                   std::int64_t dim, const KeptScores& scores);

// Scores of the op that ran last, when it scores entries; false when it does not.
bool keep_scores(const Session& session, KeptScores* kept);

}  // namespace attnscope
