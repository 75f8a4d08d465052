// Checks of what ops are given and no op puts out: the numbers of a step's tokens, the hidden state
// that the layers begin with, the rotary tables, and tensors that changed since they were written.
// References are fed the same, so that no comparison of outputs would show it.
//
// A result only where something is wrong: an op that is fed well has no tap for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/metadata/step_metadata.h"
#include "engine/model/model_config.h"
#include "engine/model/weights.h"
#include "engine/session/step/op_params.h"
#include "engine/trace/tap_result.h"
#include "kernels/params/lane_table.h"

namespace attnscope {

// Tokens, positions, rows, starts, lengths and what to sample, derived once more from what each
// request knows and how much of it the scheduler gave this step.
std::vector<TapResult> check_tokens(const StepMetadata& step, const Serving& serving);

// What a layer that drafts is told follows each token, derived once more from what each request
// knows and from what was sampled, [N].
std::vector<TapResult> check_next(const StepMetadata& step, const Serving& serving,
                                  const as_tensor& sampled);

// Hits of a group with a draft layer that is not flagged, whose last row is of another token behind
// it than the request has (stale_drafts.h).
std::optional<TapResult> check_drafted_hits(const ModelConfig& config, const CacheLayout& layout,
                                            const Serving& serving);

// Rows of the hidden state against the embedding.
std::optional<TapResult> check_embedded(const as_tensor& h, const StepMetadata& step,
                                        const Weights& weights);

// Rows of a rotary table at the tokens' positions against what ref.exact computes of the numbers.
std::optional<TapResult> check_rope(as_op_id by, const as_rope& rope, const StepMetadata& step,
                                    const Lane& exact, const as_threads* threads);

// A hash for every row of a tensor's first axis.
using RowHashes = std::vector<std::uint64_t>;

// By tap: rows of the input tensors, weights left out for their size; empty for other taps.
std::vector<RowHashes> hash_inputs(const OpParams& params, const as_threads* threads);

// Rows of inputs by token that hold a finite value of 2^60 or more, whose square leaves the range
// of fp32; empty where none does.
std::vector<bool> huge_rows(const OpParams& params, const as_threads* threads);

// Whether a tensor still is what its writer, or its first reader, saw.
class Unchanged {
 public:
  explicit Unchanged(const as_threads* threads) : threads_(threads) {}

  void begin_step() { seen_.clear(); }
  // Before an op: inputs that changed since, each once. After it: its inputs and outputs as they
  // are. hashes: of its inputs then (hash_inputs).
  std::vector<TapResult> before(const OpParams& params, const std::vector<RowHashes>& hashes,
                                const StepMetadata& step);
  void after(const OpParams& params, const std::vector<RowHashes>& hashes);
  // The session itself wrote a tensor that ops read, from what `by` gave.
  void wrote(const as_tensor& tensor, as_op_id by);

 private:
  struct Seen {
    RowHashes rows;
    std::size_t bytes = 0;
    as_op_id by = AS_OP_SCHEDULE;  // who wrote or first read it
  };
  const as_threads* threads_;
  std::unordered_map<const void*, Seen> seen_;
};

}  // namespace attnscope
