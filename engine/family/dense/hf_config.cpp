// Hugging Face config.json of LlamaForCausalLM, MistralForCausalLM, Qwen3ForCausalLM and
// Gemma3ForCausalLM: what says how attention is computed. Keys of MLPs and the vocabulary are
// accepted and not used. What the format has no key for has one of its own here:
//   attnscope_block_size   tokens of a page, 16
//   attnscope_rope_style   "neox" or "gptj"
//   attnscope_sinks        whether attention has a sink a head: self_attn.sinks
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/family/dense/dense.h"
#include "engine/io/json_object.h"
#include "kernels/params/paged_params.h"

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
void refuse_unsupported(JsonObject& root) {
  if (root.boolean("attention_bias", false)) {
    root.fail("attention_bias", "true is not supported", "projections have no bias here");
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

// Which layers have the window: those that layer_types names, every one but each n-th
// (sliding_window_pattern), those from max_window_layers on, or all.
void read_windows(JsonObject& root, const std::string& type, int layers, ModelConfig& c) {
  c.dense.windows.assign(static_cast<std::size_t>(layers), 0);
  c.window = 0;
  const bool used = root.boolean("use_sliding_window", type != "qwen3");
  if (!used || !root.has("sliding_window")) return;
  c.window = int_of(root.integer("sliding_window", 1, kMostDenseRead));
  std::vector<std::string> types;
  if (root.has("layer_types")) types = root.texts("layer_types");
  if (!types.empty() && types.size() < static_cast<std::size_t>(layers)) {
    return root.fail("layer_types",
                     fmt::format("has {} entries for {} layers", types.size(), layers),
                     "one entry a layer");
  }
  const std::int64_t pattern =
      root.integer("sliding_window_pattern", 1, kMostDenseLayers, type == "gemma3_text" ? 6 : 0);
  const std::int64_t first = root.integer("max_window_layers", 0, kMostDenseLayers, 0);
  for (int i = 0; i < layers; ++i) {
    bool sliding = pattern > 0 ? (i + 1) % pattern != 0 : i >= first;
    if (!types.empty()) {
      const std::string& name = types[static_cast<std::size_t>(i)];
      sliding = name == "sliding_attention";
      if (!sliding && name != "full_attention") {
        return root.fail(fmt::format("layer_types[{}]", i), shown_name(name) + " is not supported",
                         "allowed: full_attention, sliding_attention");
      }
    }
    if (sliding) c.dense.windows[static_cast<std::size_t>(i)] = c.window;
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
  read_windows(root, type, layers, c);
  DenseAttention& d = c.dense;
  d.qk_norm = gemma || type == "qwen3";
  d.weight_plus_one = gemma;
  d.tied = root.boolean("tie_word_embeddings", gemma);
  d.soft_cap = root.number("attn_logit_softcapping", 0, kLargest, 0);
  if (gemma) {
    d.scale = 1 / std::sqrt(root.number("query_pre_attn_scalar", 1e-6, kLargest, c.head_dim));
  }
  d.sinks = root.boolean("attnscope_sinks", false);
  d.block_tokens = int_of(root.integer("attnscope_block_size", 1, kMostDenseRead, d.block_tokens));
  const bool pairs = root.choice("attnscope_rope_style", {"neox", "gptj"}, "neox") == "gptj";
  d.rope_style = pairs ? AS_ROPE_GPTJ : AS_ROPE_NEOX;
  return c;
}

}  // namespace

Result<ModelConfig> dense_read_config(const std::string& path, const nlohmann::json& file) {
  JsonReader reader(path);
  JsonObject root(reader, file);
  refuse_unsupported(root);
  ModelConfig config = read_dense(root);
  if (!reader.ok()) return reader.error();
  return config;
}

nlohmann::ordered_json dense_write_config(const ModelConfig& c, bool) {
  const DenseAttention& d = c.dense;
  const bool gemma = d.weight_plus_one;
  const bool windows = std::ranges::any_of(d.windows, [](int n) { return n > 0; });
  const PublishedModel& model = dense().published[gemma ? 3 : d.qk_norm ? 2 : windows ? 1 : 0];
  nlohmann::ordered_json j;
  j["architectures"] = {model.architecture};
  j["attention_bias"] = false;
  if (d.soft_cap > 0) j["attn_logit_softcapping"] = d.soft_cap;
  j["head_dim"] = c.head_dim;
  j["hidden_size"] = c.hidden;
  if (windows) {
    for (const int n : d.windows) {
      j["layer_types"].push_back(n > 0 ? "sliding_attention" : "full_attention");
    }
  }
  j["max_position_embeddings"] = c.max_position;
  j["model_type"] = model.model_type;
  j["num_attention_heads"] = c.heads;
  j["num_hidden_layers"] = c.published_layers();
  j["num_key_value_heads"] = c.kv_heads;
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
  if (d.rope_style == AS_ROPE_GPTJ) j["attnscope_rope_style"] = "gptj";
  if (d.sinks) j["attnscope_sinks"] = true;
  if (c.num_layers() != c.published_layers()) j["attnscope_layers"] = c.layers;
  return j;
}

}  // namespace attnscope
