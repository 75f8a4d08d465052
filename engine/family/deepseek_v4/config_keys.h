// Key names of a model configuration, so that messages name what the reader of the file wrote:
// the names of a Hugging Face config.json (also used for presets) or of DeepSeek's own.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace attnscope {

struct ConfigKeys {
  const char* hidden = "hidden_size";
  const char* num_layers = "num_hidden_layers";
  const char* draft_layers = "num_nextn_predict_layers";
  const char* heads = "num_attention_heads";
  const char* head_dim = "head_dim";
  const char* rope_dim = "qk_rope_head_dim";
  const char* q_lora = "q_lora_rank";
  const char* o_lora = "o_lora_rank";
  const char* o_groups = "o_groups";
  const char* window = "sliding_window";
  const char* compress_ratios = "compress_ratios";
  const char* index_heads = "index_n_heads";
  const char* index_dim = "index_head_dim";
  const char* index_topk = "index_topk";
  const char* rope_theta = "rope_theta";
  const char* compress_rope_theta = "compress_rope_theta";
  const char* yarn_factor = "rope_scaling.factor";
  const char* yarn_original_max = "rope_scaling.original_max_position_embeddings";
  const char* yarn_beta_fast = "rope_scaling.beta_fast";
  const char* yarn_beta_slow = "rope_scaling.beta_slow";
  const char* max_position = "max_position_embeddings";
  const char* rms_eps = "rms_norm_eps";
};

// Names of DeepSeek's inference/config.json, and whether a file has them.
ConfigKeys deepseek_keys();
bool has_deepseek_keys(const nlohmann::json& file);

}  // namespace attnscope
