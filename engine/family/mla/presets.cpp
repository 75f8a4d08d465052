// v3.2 has the published dimensions; tiny-v3.2 every byte layout of it and selects from 65 tokens
// on, tiny-v3 attends over all tokens, with rows in bf16.
#include "engine/family/mla/mla.h"
#include "kernels/params/mla_params.h"

namespace attnscope {
namespace {

ModelConfig mla_model(const char* name, int layers) {
  ModelConfig c;
  c.name = name;
  c.family = "mla";
  c.kv_heads = 1;
  c.head_dim = AS_MLA_WIDTH;
  c.rope_dim = AS_MLA_ROPE;
  c.window = 0;
  c.rope_theta = 10000;
  c.yarn_factor = 40;
  c.yarn_original_max = 4096;
  c.max_position = 163840;
  c.mla.mscale = 1;
  c.compress_ratios.assign(static_cast<std::size_t>(layers), 0);
  return c;
}

// Every layer selects tokens.
void with_indexer(ModelConfig& c) {
  c.mla.indexer = true;
  c.compress_ratios.assign(c.compress_ratios.size(), 1);
}

ModelConfig mla_v3_2() {
  ModelConfig c = mla_model("v3.2", 61);
  c.hidden = 7168;
  c.heads = 128;
  c.q_lora = 1536;
  c.index_heads = 64;
  c.index_topk = 2048;
  with_indexer(c);
  return c;
}

ModelConfig mla_tiny(const char* name, int layers) {
  ModelConfig c = mla_model(name, layers);
  c.hidden = 256;
  c.heads = 8;
  c.q_lora = 128;
  c.index_heads = 8;
  c.index_topk = 64;
  c.mla.nope_dim = 32;
  c.mla.value_dim = 32;
  return c;
}

ModelConfig mla_tiny_v3_2() {
  // Behind a third layer of random weights another rounding selects other tokens.
  ModelConfig c = mla_tiny("tiny-v3.2", 2);
  with_indexer(c);
  return c;
}

ModelConfig mla_tiny_v3() {
  ModelConfig c = mla_tiny("tiny-v3", 3);
  c.mla.latent_record = AS_RECORD_BF16;
  return c;
}

}  // namespace

ModelConfig mla_example() {
  ModelConfig c = mla_tiny_v3_2();
  c.compress_ratios[1] = 0;  // a layer of either type
  c.mla.tied = true;         // so that an op reads the embedding
  return c;
}

std::span<const FamilyPreset> mla_presets() {
  static constexpr FamilyPreset kPresets[] = {
      {"tiny-v3", mla_tiny_v3}, {"tiny-v3.2", mla_tiny_v3_2}, {"v3.2", mla_v3_2}};
  return kPresets;
}

}  // namespace attnscope
