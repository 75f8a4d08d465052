// Every term of one index score: for each index head the dot product of query and key, cut off at
// 0, times the head's weight, times the scales.
//
//   score = key scale * sum_j weight_j * relu(q_j . k)
//
// Worked out anew in float64 from the codes that the op read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/session/step/step_trace.h"
#include "kernels/params/indexer_params.h"

namespace attnscope {

struct ScoreTerm {
  std::int64_t head = 0;
  double dot = 0;      // of the values before the query's FP8 scale and the key's
  double relu = 0;     // the same, 0 where it is negative
  double weight = 0;   // of the head, as the op takes it: the FP8 query's scale is in it
  double raw = 0;      // the projection's, before scales; NaN: not known
  double q_scale = 1;  // that is folded in; NaN: not known, 1 in MXFP4
  double term = 0;     // what the head adds to the score
};
struct ScoreTerms {
  std::string why_empty;
  std::vector<ScoreTerm> heads;  // in their order
  double key_scale = 1;          // 1 in MXFP4, whose scales are inside the dot product
  double factor = 1;             // d^-0.5 J^-0.5, that is in the weights too
  double sum = 0;                // of the terms
  double score = 0;              // the op's own; NaN: not known
  std::int64_t cut = 0;          // heads whose product was negative
  std::string sentence;
};

struct ScoreInput {
  as_tensor q{}, q_scale{}, weights{};  // inputs of indexer_logits
  as_tensor weights_raw{};              // of indexer_q; absent: not known
  std::int64_t row = 0;                 // of them
  std::int32_t record = AS_RECORD_NONE;
  const std::uint8_t *key = nullptr, *key_scales = nullptr;  // payload and scales of the entry
  std::int64_t entry = -1;
  double score = 0;  // that the op put out
};
ScoreTerms score_terms(const ScoreInput& input);
// Of a step whose tensors are kept; key: the entry's whole row. row: token row of the step.
ScoreTerms score_terms(const StepTrace& step, int layer, std::int64_t row, std::int64_t entry,
                       std::int32_t record, std::span<const std::uint8_t> key);

}  // namespace attnscope
