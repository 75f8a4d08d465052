// "ref.model" of absorbed MLA (DeepSeek-V3, V3.2): as model.h, from numbers of its own. It absorbs
// nothing: keys and values of all heads are made of the latent row, as the model is described.
#pragma once

#include "reference/model.h"

namespace attnscope::reference {

// What a config.json says of attention.
struct MlaNumbers {
  std::int64_t hidden = 0, heads = 0, q_lora = 0, kv_lora = 512;
  std::int64_t nope_dim = 0, rope_dim = 64, value_dim = 0;
  std::int64_t index_heads = 0, index_dim = 128, index_topk = 0;
  double norm_eps = 1e-6, index_norm_eps = 1e-6;
  double scale = 0;  // of scores
  double rope_theta = 10000;
  double yarn_factor = 1, yarn_original_max = 4096, yarn_beta_fast = 32, yarn_beta_slow = 1;
  std::vector<int> layers;    // those that run, ascending
  std::vector<bool> selects;  // of each: a token attends over the index_topk best ones alone
  bool tied = false;          // the head is the embedding
};

// As ModelReference::make.
Result<std::unique_ptr<ModelReference>> make_mla_model(const MlaNumbers& numbers,
                                                       const TensorSource& source,
                                                       std::shared_ptr<const void> owner = {});

}  // namespace attnscope::reference
