// Small models of each kind: between them all block sizes, head sizes, rotary styles and switches
// that dense attention has.
#include <algorithm>

#include "engine/family/dense/dense.h"
#include "engine/family/dense/encoder_decoder.h"
#include "kernels/params/paged_params.h"

namespace attnscope {
namespace {

ModelConfig small_model(const char* name, int layers, int heads, int kv_heads, int head_dim) {
  ModelConfig c;
  c.name = name;
  c.family = "dense";
  c.hidden = 256;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = c.rope_dim = head_dim;
  c.window = 0;
  c.max_position = 131072;
  c.compress_ratios.assign(static_cast<std::size_t>(layers), 0);
  c.dense.windows.assign(static_cast<std::size_t>(layers), 0);
  return c;
}

// GQA, four query heads on each KV head.
ModelConfig dense_llama() {
  ModelConfig c = small_model("tiny-llama", 4, 8, 2, 32);
  c.rope_theta = 500000;
  c.rms_eps = 1e-5;
  return c;
}

// The same with rows of codes: e4m3 under one scale a layer, and int8 under scales of its own.
ModelConfig dense_llama_fp8() {
  ModelConfig c = dense_llama();
  c.name = "tiny-llama-fp8";
  c.dense.cache_record = AS_RECORD_FP8_TENSOR;
  return c;
}
ModelConfig dense_llama_int8() {
  ModelConfig c = dense_llama();
  c.name = "tiny-llama-int8";
  c.dense.cache_record = AS_RECORD_INT8_TOKEN_HEAD;
  return c;
}

// Five sliding layers, then a full one; norms of queries and keys, all norms with 1 + w.
ModelConfig dense_gemma() {
  ModelConfig c = small_model("tiny-gemma", 6, 4, 2, 64);
  c.window = 32;
  std::fill_n(c.dense.windows.begin(), 5, c.window);
  c.rope_theta = 1e6;
  c.dense.local_rope_theta = 1e4;
  c.dense.block_tokens = 8;
  c.dense.qk_norm = c.dense.weight_plus_one = true;
  return c;
}

// Every head has keys and values of its own; pairs as in GPT-J, half of each head is turned; a page
// holds one token.
ModelConfig dense_mha() {
  ModelConfig c = small_model("tiny-mha", 3, 4, 4, 64);
  c.rope_dim = 32;
  c.dense.rope_style = AS_ROPE_GPTJ;
  c.dense.block_tokens = 1;
  c.dense.tied = false;
  return c;
}

// All heads share one KV head; sinks and a soft cap; windows shorter than a page in every second
// layer.
ModelConfig dense_mqa() {
  ModelConfig c = small_model("tiny-mqa", 4, 8, 1, 128);
  c.window = 24;
  c.dense.windows = {c.window, 0, c.window, 0};
  c.dense.block_tokens = 48;
  c.dense.sinks = true;
  c.dense.soft_cap = 20;
  return c;
}

// Three layers of four in chunks of two pages, with pairs turned; the fourth sees all and turns
// nothing.
ModelConfig dense_llama4() {
  ModelConfig c = small_model("tiny-llama4", 4, 8, 2, 32);
  c.rope_theta = 500000;
  c.rms_eps = 1e-5;
  c.dense.chunks = {32, 32, 32, 0};
  c.dense.unrotated = {0, 0, 0, 1};
  c.dense.rope_style = AS_ROPE_GPTJ;
  c.dense.tied = false;
  return c;
}

// All layers with a window, which is no multiple of a page.
ModelConfig dense_mistral() {
  ModelConfig c = small_model("tiny-mistral", 4, 8, 2, 32);
  c.window = 40;
  c.dense.windows.assign(4, c.window);
  c.rope_theta = 1e4;
  c.rms_eps = 1e-5;
  c.dense.tied = false;
  return c;
}

// Windows of two pages and none in turn, and sinks; eight query heads on each KV head.
ModelConfig dense_gptoss() {
  ModelConfig c = small_model("tiny-gptoss", 4, 16, 2, 64);
  c.window = 32;
  c.dense.windows = {c.window, 0, c.window, 0};
  c.rope_theta = 150000;
  c.rms_eps = 1e-5;
  c.dense.sinks = true;
  c.dense.tied = false;
  return c;
}

// ALiBi in the place of rotations, for heads that are no power of two; a scale of its own.
ModelConfig dense_alibi() {
  ModelConfig c = small_model("tiny-alibi", 3, 12, 4, 32);
  c.dense.alibi_bias_max = 8;
  c.dense.unrotated.assign(3, 1);
  c.dense.scale = 0.125;
  return c;
}

// The last three of seven layers read keys and values of layers 2 and 3, a window and none in turn;
// norms of queries and keys.
ModelConfig dense_kvshare() {
  ModelConfig c = small_model("tiny-kvshare", 7, 8, 2, 32);
  c.window = 24;
  c.dense.windows = {c.window, 0, c.window, 0, c.window, 0, c.window};
  c.dense.shared_layers = 3;
  c.dense.block_tokens = 8;
  c.dense.qk_norm = true;
  c.rope_theta = 1e6;
  c.dense.local_rope_theta = 1e4;
  return c;
}

// A request is a text that every token of it sees.
ModelConfig dense_bert() {
  ModelConfig c = small_model("tiny-bert", 3, 8, 8, 32);
  c.dense.encoder = true;
  c.dense.unrotated.assign(3, 1);
  c.rms_eps = 1e-12;
  return c;
}

// Two layers that encode a source, two blocks of a decoder with cross attention; a bias by distance
// in the place of rotations, and scores that are not scaled. Requests end with two tokens of the
// decoder's, so that a prompt has some that see each other.
ModelConfig dense_t5() {
  ModelConfig c = small_model("tiny-t5", 6, 8, 8, 32);
  c.dense.sides = {kSourceSide, kSourceSide, kDecoderSide, kCrossSide, kDecoderSide, kCrossSide};
  c.dense.unrotated.assign(6, 1);
  c.dense.scale = 1;
  c.dense.bias_buckets = 16;
  c.dense.bias_distance = 40;
  c.dense.decoder_prompt = 2;
  return c;
}

// A request is an image: as many tokens as it has patches. Heads of 72, as SigLIP's.
ModelConfig dense_vit() {
  ModelConfig c = small_model("tiny-vit", 3, 4, 4, 72);
  c.dense.encoder = true;
  c.dense.unrotated.assign(3, 1);
  c.dense.tied = false;
  return c;
}

}  // namespace

ModelConfig dense_example() {
  ModelConfig c = dense_llama4();
  c.window = 32;
  c.dense.windows = {0, c.window, 0, 0};
  c.dense.chunks[1] = 0;
  c.dense.qk_norm = c.dense.sinks = c.dense.tied = true;
  c.dense.alibi_bias_max = 8;
  return c;
}

std::span<const FamilyPreset> dense_presets() {
  static constexpr FamilyPreset kPresets[] = {{"tiny-alibi", dense_alibi},
                                              {"tiny-bert", dense_bert},
                                              {"tiny-gemma", dense_gemma},
                                              {"tiny-gptoss", dense_gptoss},
                                              {"tiny-kvshare", dense_kvshare},
                                              {"tiny-llama", dense_llama},
                                              {"tiny-llama-fp8", dense_llama_fp8},
                                              {"tiny-llama-int8", dense_llama_int8},
                                              {"tiny-llama4", dense_llama4},
                                              {"tiny-mha", dense_mha},
                                              {"tiny-mistral", dense_mistral},
                                              {"tiny-mqa", dense_mqa},
                                              {"tiny-t5", dense_t5},
                                              {"tiny-vit", dense_vit}};
  return kPresets;
}

}  // namespace attnscope
