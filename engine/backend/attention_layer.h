// One attention layer as a backend is given it: what is computed, over which rows of which cache.
//
//   for (const AttentionLayerGroup& group : attention_layers(config)) {
//     Result<BackendSelection> s = explain_backends(
//         backends, layer_request(attention_request(config), group));
//   }
#pragma once

#include <string>
#include <vector>

#include "engine/backend/attention_backend.h"
#include "engine/model/model_config.h"

namespace attnscope {

struct AttentionLayer {
  AttentionLayerKind kind = AttentionLayerKind::kAttention;
  AttentionType type = AttentionType::kDecoder;
  int heads = 0, kv_heads = 0;           // of the whole model, not of a rank
  int head_size = 0, value_size = 0;     // as in AttentionRequest
  int nope_dim = 0;                      // with MLA: dims of a head without RoPE
  double scale = 0;                      // of scores
  int window = 0;                        // tokens that a token sees, 0 = all
  int chunk = 0;                         // tokens of the chunks that it sees, 0 = none
  std::vector<float> alibi_slopes = {};  // a head; empty = no ALiBi
  double soft_cap = 0;                   // of scores, 0 = none
  bool mla = false, sparse = false, sinks = false;
  std::string cache_dtype = "auto";  // that of the model
  int first_tokens_16bit = 0;        // of a request, which have other rows besides
  int kv_of = -1;  // published layer whose keys and values it reads; -1 = it has its own
  friend bool operator==(const AttentionLayer&, const AttentionLayer&) = default;
};

// "full", "window 32", "chunks of 32", "MLA", "sparse MLA"; with what shares keys and values.
std::string describe(const AttentionLayer& layer);

// Layers that ask the same of a backend.
struct AttentionLayerGroup {
  AttentionLayer layer;
  std::vector<int> layers;  // published numbers, ascending
};

// Of the i-th layer that runs. Sizes of a model whose heads are dealt out are those of all ranks.
AttentionLayer attention_layer(const ModelConfig& config, int i);
// Those that run, by what they ask, in the order of their first layers.
std::vector<AttentionLayerGroup> attention_layers(const ModelConfig& config);

// The request of a model with what these layers ask in the place of what all layers may ask. What
// no rule looks at (scale, chunks, whose keys and values they are) leaves it as it is: a backend
// is given it when it runs.
AttentionRequest layer_request(AttentionRequest request, const AttentionLayerGroup& group);

}  // namespace attnscope
