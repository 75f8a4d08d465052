// "ref.model": the whole model in one file, read top-down like its description: a witness that
// shares no code with the ops, lanes and sessions it is held against. From numbers, tensors under
// their published names and token ids it computes hidden states, selections, logits and the next
// token in float64, exactly: nothing is quantised and nothing is rounded but the weights, which are
// what the file says, and cos and sin, which served models keep as a table of fp32 angles in fp32.
//
//   auto model = ModelReference::make(numbers, source);
//   auto out = (*model)->step({{request, tokens}});  // the next positions of this request
//   (*model)->cut(request, length);                  // a step back: later positions are forgotten
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/tensorfile/tensor_file.h"
#include "kernels/params/result.h"

namespace attnscope::reference {

// What a config.json says of attention, and what a run chooses beyond it.
struct ModelNumbers {
  std::int64_t hidden = 0, heads = 0, q_lora = 0, o_lora = 0, o_groups = 0;
  std::int64_t head_dim = 512, rope_dim = 64, window = 128;
  std::int64_t index_heads = 64, index_dim = 128, index_topk = 512;
  double norm_eps = 1e-6;
  double rope_theta = 10000, compress_rope_theta = 160000;
  double yarn_factor = 16, yarn_original_max = 65536, yarn_beta_fast = 32, yarn_beta_slow = 1;
  std::vector<int> compress_ratios;  // of every published layer: 0, 4 or 128
  std::vector<int> layers;           // those that run, ascending
  // How many of them, the last ones, draft a token more: 0 or 1. Its weights are called mtp.0.
  int draft_layers = 0;
  bool yarn_in_every_layer = false;  // also in layers without compression
  bool fp32_frequencies = true;      // of the rotation, each step rounded to fp32; else float64
  bool keep_fp8_values = false;      // FP8 projections are not rounded to bf16
  bool keep_fp8_output = false;      // nor is wo_a
  float sink_shift = 0;              // added to every sink
  std::map<int, float> sinks = {};   // by head, in the place of the weights' own
};

// The tensor of a published name ("layers.2.attn.wq_a.weight"); nullptr = there is none. Its bytes
// are read where they lie, as long as the model lives; FP8 codes are decoded once.
using TensorSource = std::function<const TensorEntry*(const std::string& name)>;

inline constexpr std::int64_t kModelTokens = 256;  // rows of the embedding, which is the head too

// Tokens at the positions that follow what a request has so far, at least one.
struct ModelRows {
  std::int64_t request = 0;
  std::span<const std::int32_t> tokens;
  // Where a layer drafts: the token behind each of them; -1 = there is none.
  std::span<const std::int32_t> next = {};
};

// What the indexer chose for the n tokens of one request. Empty in layers without one, and before
// there is an entry.
struct ModelChoice {
  std::int64_t entries = 0;
  std::vector<char> selected;  // [n, entries] 1: a token attends to it, 0: it does not
  std::vector<double> scores;  // [n, entries] -infinity of those that it may not see yet
  // [n] Of the last entry chosen over the best one left out; infinite where none was.
  std::vector<double> margin;
};

// What one layer gave for the T tokens of a step, in the order that they were given.
struct ModelLayer {
  std::vector<double> hidden;        // [T, hidden], with the residual
  std::vector<ModelChoice> choices;  // by ModelRows
};

struct ModelOutput {
  std::vector<ModelLayer> layers;  // by running layer
  std::vector<double> logits;      // [T, 256]
  std::vector<std::int32_t> next;  // [T] the token with the highest logit, the lowest of equals
  std::vector<double> margin;      // [T] of its logit over the second
  std::vector<double> drafted;     // [T, 256] logits of what comes behind the token behind
};

class ModelReference {
 public:
  // owner: keeps the bytes of the source's tensors. AS_NO_ENVIRONMENT: libtorch does not load.
  // AS_BAD_INPUT names a tensor that is missing or has another shape or type than the model's.
  static Result<std::unique_ptr<ModelReference>> make(const ModelNumbers& numbers,
                                                      const TensorSource& source,
                                                      std::shared_ptr<const void> owner = {});
  virtual ~ModelReference() = default;

  // Each request once.
  virtual Result<ModelOutput> step(std::span<const ModelRows> rows) = 0;
  // Positions computed so far.
  virtual std::int64_t length(std::int64_t request) const = 0;
  // Forgets positions from `length` on, or all of them where that is so far back that what the next
  // one reads is no longer kept: length() says it. Nothing where there are none.
  virtual void cut(std::int64_t request, std::int64_t length) = 0;

  // What it computes by, for others to be held against.

  virtual std::vector<std::string> weights() const = 0;  // published names
  // How many values of `given` are not those of this weight from a row and column on; -1 where the
  // weight is smaller. scale: of FP8 codes, one for each 128 x 128.
  virtual std::int64_t others(const std::string& weight, std::int64_t row, std::int64_t column,
                              const TensorEntry& given, const TensorEntry* scale) const = 0;
  // Of a running layer: what its pairs of channels turn by from one position to the next.
  virtual std::vector<double> frequencies(std::size_t layer) const = 0;
};

}  // namespace attnscope::reference
