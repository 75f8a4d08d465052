// What the layers of a model ask of an attention backend: from a model of ours, or from any
// config.json in Hugging Face form.
//
//   Result<ReadRequest> read = read_attention_request("llama/config.json");
#pragma once

#include <string>

#include "engine/backend/attention_backend.h"
#include "engine/model/model_config.h"

namespace attnscope {

// Platform and override are left as they are by default.
AttentionRequest attention_request(const ModelConfig& config);

struct ReadRequest {
  AttentionRequest request;
  std::string note;  // how it was read, where that is not plain; a sentence
};

// A config.json, or the folder that has one. What a family of ours reads comes from its
// configuration; anything else from the file's own keys, such as num_attention_heads, head_dim,
// kv_lora_rank, sliding_window, attn_logit_softcapping, torch_dtype. AS_BAD_INPUT names file and
// key.
Result<ReadRequest> read_attention_request(const std::string& path);

}  // namespace attnscope
