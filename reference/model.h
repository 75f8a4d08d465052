// "ref.model": the whole model in one file, read top-down like its description: a witness that
// shares no code with the ops, lanes and sessions it is held against. From numbers, tensors under
// their published names and token ids it computes hidden states, selections, logits and the next
// token in float64, exactly: nothing is quantised and nothing is rounded but the weights, which are
// what the file says, and cos and sin, which served models keep as a table of fp32 angles in fp32.
//
//   auto model = ModelReference::make(numbers, source);
//   auto out = (*model)->step(request, tokens);  // the next positions of this request
//   (*model)->cut(request, length);              // a step back: later positions are forgotten
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
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
  bool yarn_in_every_layer = false;  // also in layers without compression
  bool fp32_frequencies = true;      // of the rotation, each step rounded to fp32; else float64
  bool keep_fp8_values = false;      // FP8 projections are not rounded to bf16
  float sink_shift = 0;              // added to every sink
};

// The tensor of a published name ("layers.2.attn.wq_a.weight"); nullptr = there is none. Its bytes
// are copied while the model is made.
using TensorSource = std::function<const TensorEntry*(const std::string& name)>;

inline constexpr std::int64_t kModelTokens = 256;  // rows of the embedding, which is the head too

// What one layer gave for T tokens.
struct ModelLayer {
  std::vector<double> hidden;  // [T, hidden], with the residual
  // Of layers with an indexer; empty in others, and before there is an entry. [T, entries]: which
  // ones a token attends to, and the scores, -infinity of those that it may not see yet.
  std::vector<bool> selected;
  std::vector<double> scores;
  // [T] Of the last entry chosen over the best one left out; infinite where none was.
  std::vector<double> margin;
};

struct ModelOutput {
  std::vector<ModelLayer> layers;  // by running layer
  std::vector<double> logits;      // [T, 256]
  std::vector<std::int32_t> next;  // [T] the token with the highest logit, the lowest of equals
  std::vector<double> margin;      // [T] of its logit over the second
};

class ModelReference {
 public:
  // AS_NO_ENVIRONMENT: libtorch does not load. AS_BAD_INPUT names a tensor that is missing or has
  // another shape or type than the model's.
  static Result<std::unique_ptr<ModelReference>> make(const ModelNumbers& numbers,
                                                      const TensorSource& source);
  virtual ~ModelReference() = default;

  // Tokens at the positions that follow what the request has so far, at least one.
  virtual Result<ModelOutput> step(std::int64_t request, std::span<const std::int32_t> tokens) = 0;
  // Positions computed so far.
  virtual std::int64_t length(std::int64_t request) const = 0;
  // Forgets positions from `length` on; nothing where there are none.
  virtual void cut(std::int64_t request, std::int64_t length) = 0;
};

}  // namespace attnscope::reference
