// "ref.model" of dense attention (MHA, GQA, MQA): as model.h, from numbers of its own.
#pragma once

#include <functional>
#include <map>

#include "reference/model.h"

namespace attnscope::reference {

// What a config.json says of attention, and what a run chooses beyond it.
struct DenseNumbers {
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t rope_dim = 0;  // the first dims of a head, which are rotated
  bool pairs = false;         // dims 2i and 2i + 1 are, as in GPT-J; else i and i + rope_dim/2
  double norm_eps = 1e-6;
  double scale = 0;                   // of scores
  double soft_cap = 0;                // of scores behind it, 0 = none
  double alibi_bias_max = 0;          // exponent of the smallest slope of ALiBi, 0 = none
  std::vector<double> rope_thetas;    // by running layer, 0 = nothing is rotated
  std::vector<std::int64_t> windows;  // by running layer: tokens seen, the own one too; 0 = all
  std::vector<std::int64_t> chunks;   // by running layer: tokens of a chunk; 0 = none, or empty
  // By running layer: the running layer whose keys and values it reads, -1 = its own; or empty.
  std::vector<int> rows_of;
  std::vector<int> layers;       // those that run, ascending
  bool qk_norm = false;          // heads of queries and keys
  bool weight_plus_one = false;  // norms multiply by 1 + w
  bool sinks = false;
  std::int64_t cache_scales = 0;  // beside keys and beside values of a layer; they are not used
  // By running layer: first tokens that have rows of 16 bits too, which it does not need; or empty.
  std::vector<std::int64_t> first_tokens;
  int form = 0;          // of attention's passes (as_paged_form), which it does not follow
  bool encoder = false;  // a token sees the tokens behind it too; requests come whole
  bool tied = true;      // the head is the embedding
  // Under a user's mask: whether query q sees key k in a head, of all rows that there are; and what
  // becomes of a score. Empty: there is none.
  std::function<bool(std::int64_t q, std::int64_t k, std::int64_t head)> shows = {};
  std::function<double(double score, std::int64_t q, std::int64_t k, std::int64_t head)> score = {};
  // An encoder-decoder as T5: what each running layer is for; empty = the model is none. Published
  // layers are those of the encoder, then of each decoder block its own attention and the cross
  // one.
  enum Side { kTarget, kSource, kCross };
  std::vector<int> sides;
  std::int64_t encoder_layers = 0;                   // that are published
  std::vector<std::int64_t> source_lens;             // by request: its first tokens
  std::int64_t bias_buckets = 0, bias_distance = 0;  // of the bias by distance
  float sink_shift = 0;                              // added to every sink
  std::map<int, float> given_sinks = {};             // by head, in the place of the weights' own
};

// As ModelReference::make.
Result<std::unique_ptr<ModelReference>> make_dense_model(const DenseNumbers& numbers,
                                                         const TensorSource& source,
                                                         std::shared_ptr<const void> owner = {});

}  // namespace attnscope::reference
