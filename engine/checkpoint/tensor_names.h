// Names of the tensors of a checkpoint. Published checkpoints and DeepSeek's own code say
// layers.2.attn.wq_a.weight, Hugging Face modules model.layers.2.self_attn.q_a_proj.weight, and
// files that were saved again mix both. Each spelling leads to the published name.
#pragma once

#include <string>
#include <string_view>

namespace attnscope {

// The published name of what an attention layer, its norm, the embedding or the final norm holds:
//   canonical_tensor_name("model.layers.2.self_attn.compressor.indexer.scorer.weights_proj.weight")
//       == "layers.2.attn.indexer.weights_proj.weight"
// Scales end in .scale. Names of other parts of a model (experts, hyper-connections, MTP) stay as
// they are.
std::string canonical_tensor_name(std::string_view name);

// The scale of a quantised weight: X.weight -> X.scale.
std::string scale_name(std::string_view weight);

}  // namespace attnscope
