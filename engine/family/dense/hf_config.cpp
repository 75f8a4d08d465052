// Hugging Face config.json of LlamaForCausalLM, MistralForCausalLM, Qwen3ForCausalLM,
// Gemma3ForCausalLM, Llama4ForCausalLM and GptOssForCausalLM: what says how attention is computed.
// Keys of MLPs and the vocabulary are accepted and not used. What the format has no key for has one
// of its own here:
//   attnscope_block_size   tokens of a page, 16
//   attnscope_rope_style   "neox" or "gptj"
//   attnscope_sinks        whether attention has a sink a head: self_attn.sinks
//   attnscope_cache_dtype  what rows of K and V hold, by the name of their format: "fp8_tensor"
//   attnscope_cache_layout "NHD" or "HND": axes of a page
//   attnscope_mask, attnscope_score   expressions of mask_expression.h
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/family/dense/dense.h"
#include "engine/family/dense/encoder_decoder.h"
#include "engine/family/dense/own_keys.h"
#include "engine/io/json_object.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostDenseLayers = 4096;
constexpr std::int64_t kMostDenseRead = 1 << 20;  // validate is stricter; this keeps ints in range
constexpr double kLargest = 1e12;

int int_of(std::int64_t n) { return static_cast<int>(n); }

std::string type_of_model(JsonObject& root) {
  if (root.has("model_type")) return root.text("model_type");
  if (!root.has("architectures")) return "llama";
  for (const PublishedModel& p : dense().published) {
    for (const std::string& name : root.texts("architectures")) {
      if (name == p.architecture) return p.model_type;
    }
  }
  return "llama";
}

// What attention of this kind has not.
void refuse_unsupported(JsonObject& root, const std::string& type) {
  const bool llama4 = type == "llama4_text";
  // Llama 4 has both where its file does not say otherwise.
  if (root.boolean("use_qk_norm", llama4)) {
    root.fail("use_qk_norm", "true is not supported",
              "norms behind the rotary embedding are not computed here; set it to false");
  }
  if (root.boolean("attn_temperature_tuning", llama4)) {
    root.fail("attn_temperature_tuning", "true is not supported",
              "queries are not scaled by their position here; set it to false");
  }
  // gpt-oss has one where its file does not say otherwise.
  if (root.boolean("attention_bias", type == "gpt_oss")) {
    root.fail("attention_bias", "true is not supported",
              "projections have no bias here; set it to false");
  }
  if (root.has("quantization_config")) {
    root.fail("quantization_config", "weights that are quantised are not supported",
              "use a checkpoint in bf16, f16 or f32");
  }
}

// One rotary embedding: {rope_type, rope_theta}.
double read_one_rope(JsonObject& rope, double fallback) {
  for (const char* key : {"rope_type", "type"}) {
    if (!rope.has(key)) continue;
    const std::string type = rope.text(key);
    if (type != "default") {
      rope.fail(key, shown_name(type) + " is not supported",
                "positions are not scaled here; allowed: default");
    }
  }
  return rope.number("rope_theta", 1, kLargest, fallback);
}

// rope_theta at the top, or in rope_parameters, which models with windows have once a layer type.
void read_ropes(JsonObject& root, bool gemma, ModelConfig& c) {
  c.rope_theta = root.number("rope_theta", 1, kLargest, gemma ? 1e6 : 1e4);
  c.dense.local_rope_theta = root.number("rope_local_base_freq", 0, kLargest, gemma ? 1e4 : 0);
  double partial = root.number("partial_rotary_factor", 0, 1, 1);
  if (root.has("rope_scaling")) {
    JsonObject scaling = root.object("rope_scaling");
    read_one_rope(scaling, c.rope_theta);
  }
  if (root.has("rope_parameters")) {
    JsonObject parameters = root.object("rope_parameters");
    if (parameters.has("full_attention")) {
      JsonObject full = parameters.object("full_attention");
      c.rope_theta = read_one_rope(full, c.rope_theta);
      if (parameters.has("sliding_attention")) {
        JsonObject sliding = parameters.object("sliding_attention");
        c.dense.local_rope_theta = read_one_rope(sliding, c.dense.local_rope_theta);
      }
    } else {
      c.rope_theta = read_one_rope(parameters, c.rope_theta);
      partial = parameters.number("partial_rotary_factor", 0, 1, partial);
    }
  }
  c.rope_dim = int_of(static_cast<std::int64_t>(c.head_dim * partial));
}

// Names of the layers' attention, empty where the file has none.
std::vector<std::string> read_layer_types(JsonObject& root, int layers) {
  std::vector<std::string> types;
  if (root.has("layer_types")) types = root.texts("layer_types");
  if (!types.empty() && types.size() < static_cast<std::size_t>(layers)) {
    root.fail("layer_types", fmt::format("has {} entries for {} layers", types.size(), layers),
              "one entry a layer");
    types.clear();
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::string& name = types[i];
    if (name == "full_attention" || name == "sliding_attention" || name == "chunked_attention") {
      continue;
    }
    root.fail(fmt::format("layer_types[{}]", i), shown_name(name) + " is not supported",
              "allowed: full_attention, sliding_attention, chunked_attention");
    return {};
  }
  return types;
}

// Which layers have the window: those that layer_types names, every one but each n-th
// (sliding_window_pattern), those from max_window_layers on, or all.
void read_windows(JsonObject& root, const std::string& type, const std::vector<std::string>& types,
                  ModelConfig& c) {
  c.window = 0;
  const bool used = root.boolean("use_sliding_window", type != "qwen3");
  if (!used || !root.has("sliding_window")) return;
  c.window = int_of(root.integer("sliding_window", 1, kMostDenseRead));
  const std::int64_t pattern =
      root.integer("sliding_window_pattern", 1, kMostDenseLayers, type == "gemma3_text" ? 6 : 0);
  const std::int64_t first = root.integer("max_window_layers", 0, kMostDenseLayers, 0);
  for (std::size_t i = 0; i < c.dense.windows.size(); ++i) {
    const auto n = static_cast<std::int64_t>(i);
    const bool sliding = !types.empty() ? types[i] == "sliding_attention"
                         : pattern > 0  ? (n + 1) % pattern != 0
                                        : n >= first;
    if (sliding) c.dense.windows[i] = c.window;
  }
}

// Which layers turn nothing: no_rope_layers has 0 for them. Without that list: with ALiBi and in
// encoders all, of Llama 4 every fourth (no_rope_layer_interval).
void read_unrotated(JsonObject& root, bool llama4, ModelConfig& c) {
  const std::size_t layers = c.dense.windows.size();
  const bool none = c.dense.alibi_bias_max > 0 || c.dense.encoder;
  const std::int64_t interval =
      root.integer("no_rope_layer_interval", 1, kMostDenseLayers, llama4 ? 4 : 0);
  std::vector<std::int64_t> turned;
  if (root.has("no_rope_layers")) turned = root.integers("no_rope_layers", 0, 1);
  if (!turned.empty() && turned.size() < layers) {
    return root.fail("no_rope_layers",
                     fmt::format("has {} entries for {} layers", turned.size(), layers),
                     "one entry a layer");
  }
  if (turned.empty() && none) c.dense.unrotated.assign(layers, 1);
  if (turned.empty() && (none || !llama4)) return;
  for (std::size_t i = 0; i < layers; ++i) {
    const bool turns =
        turned.empty() ? (static_cast<std::int64_t>(i) + 1) % interval != 0 : turned[i] != 0;
    c.dense.unrotated.push_back(turns ? 0 : 1);
  }
}

// Which layers attend in chunks: those that layer_types names; in Llama 4 without it those that
// rotate.
void read_chunks(JsonObject& root, bool llama4, const std::vector<std::string>& types,
                 ModelConfig& c) {
  const bool given = root.has("attention_chunk_size");
  int chunk = llama4 ? 8192 : 0;
  if (given) chunk = int_of(root.integer("attention_chunk_size", 1, kMostDenseRead));
  for (std::size_t i = 0; i < c.dense.windows.size(); ++i) {
    const bool chunked =
        !types.empty() ? types[i] == "chunked_attention" : llama4 && c.dense.unrotated[i] == 0;
    if (chunked && chunk == 0) {
      return root.fail("attention_chunk_size", fmt::format("is missing, layer {} has chunks", i),
                       "give the tokens of a chunk");
    }
    if (chunked) c.dense.chunks.resize(c.dense.windows.size(), 0);
    if (chunked) c.dense.chunks[i] = chunk;
  }
}

// A bias by distance: "alibi" as Falcon has it at the top and MPT in attn_config, whose
// alibi_bias_max and softmax_scale come with it.
void read_alibi(JsonObject& root, ModelConfig& c) {
  const auto read = [&](JsonObject& from) {
    const double most = from.number("alibi_bias_max", 1e-3, kLargest, 8);
    if (from.boolean("alibi", false)) c.dense.alibi_bias_max = most;
  };
  read(root);
  if (!root.has("attn_config")) return;
  JsonObject attention = root.object("attn_config");
  read(attention);
  if (!attention.has("softmax_scale")) return;
  c.dense.scale = attention.number("softmax_scale", 1e-9, kLargest);
}

// What each layer sees, and whether it rotates.
void read_layers(JsonObject& root, const std::string& type, int layers, ModelConfig& c) {
  const bool llama4 = type == "llama4_text";
  c.dense.windows.assign(static_cast<std::size_t>(layers), 0);
  const std::vector<std::string> types = read_layer_types(root, layers);
  if (root.has("layer_types") && types.empty()) return;
  read_windows(root, type, types, c);
  read_unrotated(root, llama4, c);
  if (!llama4 || c.dense.unrotated.size() == c.dense.windows.size()) {
    read_chunks(root, llama4, types, c);
  }
}

ModelConfig read_dense(JsonObject& root) {
  const std::string type = type_of_model(root);
  const bool gemma = type == "gemma3_text";
  ModelConfig c;
  c.family = "dense";
  c.hidden = int_of(root.integer("hidden_size", 1, kMostDenseRead));
  c.heads = int_of(root.integer("num_attention_heads", 1, kMostDenseRead));
  c.kv_heads = int_of(root.integer("num_key_value_heads", 1, kMostDenseRead, c.heads));
  c.head_dim =
      int_of(root.integer("head_dim", 1, kMostDenseRead, c.hidden / (c.heads > 0 ? c.heads : 1)));
  c.rms_eps = root.number("rms_norm_eps", 0, 1, 1e-6);
  c.max_position = root.integer("max_position_embeddings", 1, std::int64_t{1} << 40, 131072);
  const int layers = int_of(root.integer("num_hidden_layers", 1, kMostDenseLayers));
  c.compress_ratios.assign(static_cast<std::size_t>(layers), 0);
  read_ropes(root, gemma, c);
  read_alibi(root, c);
  c.dense.encoder = !root.boolean("is_causal", true);
  read_layers(root, type, layers, c);
  DenseAttention& d = c.dense;
  if (root.has("num_kv_shared_layers")) {
    d.shared_layers = int_of(root.integer("num_kv_shared_layers", 0, kMostDenseLayers));
  }
  d.qk_norm = gemma || type == "qwen3";
  d.weight_plus_one = gemma;
  d.tied = root.boolean("tie_word_embeddings", gemma);
  d.soft_cap = root.number("attn_logit_softcapping", 0, kLargest, 0);
  if (gemma) {
    d.scale = 1 / std::sqrt(root.number("query_pre_attn_scalar", 1e-6, kLargest, c.head_dim));
  }
  if (root.has("attention_multiplier")) {
    d.scale = root.number("attention_multiplier", 1e-9, kLargest);
  }
  d.sinks = root.boolean("attnscope_sinks", type == "gpt_oss");
  if (root.has("attnscope_cache_dtype")) {
    const Result<std::int32_t> record = dense_cache_record(root.text("attnscope_cache_dtype"));
    if (record) d.cache_record = *record;
    if (!record) root.fail("attnscope_cache_dtype", record.error().message, record.error().hint);
  }
  read_own_keys(root, d);
  d.first_tokens_16bit = int_of(root.integer("attnscope_first_tokens_16bit", 0, kMostDenseRead, 0));
  d.block_tokens = int_of(root.integer("attnscope_block_size", 1, kMostDenseRead, d.block_tokens));
  const char* style = type == "llama4_text" ? "gptj" : "neox";
  const bool pairs = root.choice("attnscope_rope_style", {"neox", "gptj"}, style) == "gptj";
  d.rope_style = pairs ? AS_ROPE_GPTJ : AS_ROPE_NEOX;
  return c;
}

}  // namespace

Result<std::int32_t> dense_cache_record(const std::string& name) {
  std::string names;
  for (const std::int32_t record : dense_cache_records()) {
    const char* own = as_row_format_of(record)->name;
    if (name == own) return record;
    names += (names.empty() ? "" : ", ") + std::string(own);
  }
  return bad_input(shown_name(name) + " is no format of rows of K and V", "allowed: " + names);
}

Result<std::int32_t> dense_layout_bit(const std::string& name) {
  if (name == "NHD") return std::int32_t{0};
  if (name == "HND") return std::int32_t{AS_RECORD_HND};
  return bad_input(shown_name(name) + " is no layout of pages",
                   "allowed: NHD (the heads of a row lie together), HND (the rows of a head)");
}

Result<ModelConfig> dense_read_config(const std::string& path, const nlohmann::json& file) {
  JsonReader reader(path);
  JsonObject root(reader, file);
  if (type_of_model(root) == "t5") return t5_read_config(path, file);
  refuse_unsupported(root, type_of_model(root));
  ModelConfig config = read_dense(root);
  if (!reader.ok()) return reader.error();
  return config;
}

nlohmann::ordered_json dense_write_config(const ModelConfig& c, bool) {
  if (is_encoder_decoder(c)) return t5_write_config(c);
  const DenseAttention& d = c.dense;
  const bool gemma = d.weight_plus_one;
  const bool windows = std::ranges::any_of(d.windows, [](int n) { return n > 0; });
  const bool chunks = !d.chunks.empty(), llama4 = chunks && !gemma && !d.qk_norm;
  const bool alibi = d.alibi_bias_max > 0, gptoss = windows && d.sinks && d.soft_cap == 0 && !alibi;
  const PublishedModel& model = dense().published[gemma       ? 3
                                                  : d.qk_norm ? 2
                                                  : llama4    ? 4
                                                  : gptoss    ? 5
                                                  : windows   ? 1
                                                              : 0];
  nlohmann::ordered_json j;
  if (alibi) j["alibi"] = true;
  if (alibi) j["alibi_bias_max"] = d.alibi_bias_max;
  j["architectures"] = {model.architecture};
  j["attention_bias"] = false;
  if (!gemma && d.scale > 0) j["attention_multiplier"] = d.scale;
  if (d.soft_cap > 0) j["attn_logit_softcapping"] = d.soft_cap;
  j["head_dim"] = c.head_dim;
  j["hidden_size"] = c.hidden;
  if (d.encoder) j["is_causal"] = false;
  if (chunks) j["attention_chunk_size"] = std::ranges::max(d.chunks);
  if (llama4) j["attn_temperature_tuning"] = j["use_qk_norm"] = false;
  if (windows || chunks) {
    for (std::size_t i = 0; i < d.windows.size(); ++i) {
      const bool chunked = chunks && d.chunks[i] > 0;
      j["layer_types"].push_back(chunked            ? "chunked_attention"
                                 : d.windows[i] > 0 ? "sliding_attention"
                                                    : "full_attention");
    }
  }
  for (std::size_t i = 0; (llama4 || !d.unrotated.empty()) && i < d.windows.size(); ++i) {
    j["no_rope_layers"].push_back(d.unrotated.empty() || d.unrotated[i] == 0 ? 1 : 0);
  }
  j["max_position_embeddings"] = c.max_position;
  j["model_type"] = model.model_type;
  j["num_attention_heads"] = c.heads;
  j["num_hidden_layers"] = c.published_layers();
  j["num_key_value_heads"] = c.kv_heads;
  if (d.shared_layers > 0) j["num_kv_shared_layers"] = d.shared_layers;
  if (c.rope_dim != c.head_dim) {
    j["partial_rotary_factor"] = static_cast<double>(c.rope_dim) / c.head_dim;
  }
  if (gemma) j["query_pre_attn_scalar"] = d.scale > 0 ? 1 / (d.scale * d.scale) : c.head_dim;
  j["rms_norm_eps"] = c.rms_eps;
  if (d.local_rope_theta > 0) j["rope_local_base_freq"] = d.local_rope_theta;
  j["rope_theta"] = c.rope_theta;
  j["sliding_window"] = nullptr;
  if (windows) {
    j["sliding_window"] = c.window;
    if (!gemma && d.qk_norm) j["use_sliding_window"] = true;
  }
  j["tie_word_embeddings"] = d.tied;
  j["torch_dtype"] = "bfloat16";
  j["vocab_size"] = c.vocabulary;
  j["attnscope_block_size"] = d.block_tokens;
  const bool pairs = d.rope_style == AS_ROPE_GPTJ;
  if (pairs || llama4) j["attnscope_rope_style"] = pairs ? "gptj" : "neox";
  if (d.sinks) j["attnscope_sinks"] = true;
  const std::int32_t placed = d.cache_record & AS_RECORD_HND, record = d.cache_record & ~placed;
  if (record != AS_RECORD_BF16) j["attnscope_cache_dtype"] = as_row_format_of(record)->name;
  if (placed != 0) j["attnscope_cache_layout"] = dense_page_layout(c);
  if (d.first_tokens_16bit > 0) j["attnscope_first_tokens_16bit"] = d.first_tokens_16bit;
  if (!d.mask.empty()) j["attnscope_mask"] = d.mask;
  if (!d.score.empty()) j["attnscope_score"] = d.score;
  if (c.num_layers() != c.published_layers()) j["attnscope_layers"] = c.layers;
  return j;
}

}  // namespace attnscope
