// Hugging Face config.json of DeepseekV3ForCausalLM and DeepseekV32ForCausalLM: what says how
// attention is computed. Keys of MLPs, experts and the vocabulary are accepted and not used. What
// the format has no key for has one of its own here:
//   attnscope_block_size    tokens of a page, 64
//   attnscope_latent_rows   "fp8" (656 bytes) or "bf16"
//   attnscope_latent_scale  "float" or "ue8m0": scales of FP8 rows
//   attnscope_index_scale   the same of index queries and keys; else quantization_config.scale_fmt
//   attnscope_hadamard      whether these are transformed, true
//   attnscope_indexer_layers  layers with an indexer, where not all have one
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/family/fp8_config.h"
#include "engine/family/mla/mla.h"
#include "engine/io/json_object.h"
#include "kernels/params/mla_params.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostMlaLayers = 4096;
constexpr std::int64_t kMostMlaRead = 1 << 20;  // validate is stricter; this keeps ints in range
constexpr double kMlaLargest = 1e12;

int mla_int(std::int64_t n) { return static_cast<int>(n); }

bool of_v3_2(JsonObject& root) {
  if (root.has("model_type")) return root.text("model_type") == "deepseek_v32";
  if (!root.has("architectures")) return false;
  for (const std::string& name : root.texts("architectures")) {
    if (name == "DeepseekV32ForCausalLM") return true;
  }
  return false;
}

// The scales of index queries and keys that the file's quantisation asks for.
std::string read_quantisation(JsonObject& root) {
  if (root.boolean("attention_bias", false)) {
    root.fail("attention_bias", "true is not supported", "projections have no bias here");
  }
  check_fp8_config(root);
  if (!root.has("quantization_config")) return "float";
  JsonObject quantised = root.object("quantization_config");
  if (!quantised.has("scale_fmt")) return "float";
  return quantised.choice("scale_fmt", {"ue8m0", "float"}, "float");
}

// YaRN, or nothing: factor 1.
void read_mla_scaling(JsonObject& scaling, ModelConfig& c) {
  const char* key = scaling.has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling.has(key) ? scaling.text(key) : "default";
  if (type == "default") return;
  if (type != "yarn" && type != "deepseek_yarn") {
    scaling.fail(key, shown_name(type) + " is not supported", "allowed: yarn, default");
    return;
  }
  c.yarn_factor = scaling.number("factor", 1.0, kMlaLargest);
  c.yarn_original_max = scaling.number("original_max_position_embeddings", 1.0, kMlaLargest);
  c.yarn_beta_fast = scaling.number("beta_fast", 0.0, kMlaLargest, 32);
  c.yarn_beta_slow = scaling.number("beta_slow", 0.0, kMlaLargest, 1);
  c.mla.mscale = scaling.number("mscale_all_dim", 0, kMlaLargest, 0);
  // Their quotient scales cos and sin, which tables here do not have.
  if (scaling.number("mscale", 0, kMlaLargest, 0) != c.mla.mscale || c.mla.mscale == 0) {
    scaling.fail("mscale", "amplitudes of the rotation are not scaled here",
                 "allowed: the same as mscale_all_dim, above 0");
  }
  if (!scaling.boolean("truncate", true)) {
    scaling.fail("truncate", "false is not supported", "allowed: true");
  }
}

void read_mla_rope(JsonObject& root, ModelConfig& c) {
  c.yarn_factor = 1;
  c.yarn_original_max = 4096;
  c.rope_theta = root.number("rope_theta", 1, kMlaLargest, 1e4);
  if (!root.boolean("rope_interleave", true)) {
    root.fail("rope_interleave", "false is not supported",
              "dims 2i and 2i + 1 of queries and keys are turned together; allowed: true");
  }
  if (root.has("rope_parameters")) {
    JsonObject parameters = root.object("rope_parameters");
    c.rope_theta = parameters.number("rope_theta", 1, kMlaLargest, c.rope_theta);
    read_mla_scaling(parameters, c);
  } else if (root.has("rope_scaling")) {
    JsonObject scaling = root.object("rope_scaling");
    read_mla_scaling(scaling, c);
  }
}

std::int32_t read_scale(JsonObject& root, const char* key, const std::string& fallback) {
  const bool power = root.choice(key, {"float", "ue8m0"}, fallback.c_str()) == "ue8m0";
  return power ? AS_SCALE_POWER_OF_TWO : AS_SCALE_FLOAT;
}

// Which layers select tokens: all, or those that are listed.
void read_indexer_layers(JsonObject& root, ModelConfig& c) {
  constexpr const char* kKey = "attnscope_indexer_layers";
  c.compress_ratios.assign(c.compress_ratios.size(), root.has(kKey) ? 0 : 1);
  if (!root.has(kKey)) return;
  for (const std::int64_t layer : root.integers(kKey, 0, c.published_layers() - 1)) {
    c.compress_ratios[static_cast<std::size_t>(layer)] = 1;
  }
}

ModelConfig read_mla(JsonObject& root) {
  const std::string scale_fmt = read_quantisation(root);
  ModelConfig c;
  MlaAttention& m = c.mla;
  c.family = "mla";
  c.window = 0;
  c.hidden = mla_int(root.integer("hidden_size", 1, kMostMlaRead));
  c.heads = mla_int(root.integer("num_attention_heads", 1, kMostMlaRead));
  c.q_lora = mla_int(root.integer("q_lora_rank", 1, kMostMlaRead));
  root.integer("kv_lora_rank", AS_MLA_LATENT, AS_MLA_LATENT);
  root.integer("qk_rope_head_dim", AS_MLA_ROPE, AS_MLA_ROPE);
  c.head_dim = AS_MLA_WIDTH;
  c.rope_dim = AS_MLA_ROPE;
  m.nope_dim = mla_int(root.integer("qk_nope_head_dim", 1, kMostMlaRead));
  m.value_dim = mla_int(root.integer("v_head_dim", 1, kMostMlaRead));
  c.rms_eps = root.number("rms_norm_eps", 0, 1, 1e-6);
  c.max_position = root.integer("max_position_embeddings", 1, std::int64_t{1} << 40, 163840);
  const auto layers = root.integer("num_hidden_layers", 1, kMostMlaLayers);
  c.compress_ratios.assign(static_cast<std::size_t>(layers), 0);
  read_mla_rope(root, c);
  m.indexer = of_v3_2(root);
  if (m.indexer) {
    read_indexer_layers(root, c);
    c.index_heads = mla_int(root.integer("index_n_heads", 1, kMostMlaRead, 64));
    c.index_dim = mla_int(root.integer("index_head_dim", 128, 128, 128));
    c.index_topk = mla_int(root.integer("index_topk", 1, kMostMlaRead, 2048));
    m.hadamard = root.boolean("attnscope_hadamard", true);
  }
  m.tied = root.boolean("tie_word_embeddings", false);
  m.block_tokens = mla_int(root.integer("attnscope_block_size", 1, kMostMlaRead, m.block_tokens));
  const bool bf16 = root.choice("attnscope_latent_rows", {"fp8", "bf16"}, "fp8") == "bf16";
  m.latent_record = bf16 ? AS_RECORD_BF16 : AS_RECORD_LATENT_656;
  m.latent_scale = read_scale(root, "attnscope_latent_scale", "float");
  m.index_scale = read_scale(root, "attnscope_index_scale", scale_fmt);
  return c;
}

const char* scale_word(std::int32_t rule) { return rule == AS_SCALE_FLOAT ? "float" : "ue8m0"; }

}  // namespace

Result<ModelConfig> mla_read_config(const std::string& path, const nlohmann::json& file) {
  JsonReader reader(path);
  JsonObject root(reader, file);
  ModelConfig config = read_mla(root);
  if (!reader.ok()) return reader.error();
  return config;
}

// Keys and their order as in published files.
nlohmann::ordered_json mla_write_config(const ModelConfig& c, bool fp8) {
  const MlaAttention& m = c.mla;
  const PublishedModel& model = mla().published[m.indexer ? 1 : 0];
  nlohmann::ordered_json j;
  j["architectures"] = {model.architecture};
  j["attention_bias"] = false;
  j["hidden_size"] = c.hidden;
  if (m.indexer) {
    j["index_head_dim"] = c.index_dim;
    j["index_n_heads"] = c.index_heads;
    j["index_topk"] = c.index_topk;
  }
  j["kv_lora_rank"] = AS_MLA_LATENT;
  j["max_position_embeddings"] = c.max_position;
  j["model_type"] = model.model_type;
  j["num_attention_heads"] = c.heads;
  j["num_hidden_layers"] = c.published_layers();
  j["num_key_value_heads"] = c.heads;
  j["q_lora_rank"] = c.q_lora;
  j["qk_nope_head_dim"] = m.nope_dim;
  j["qk_rope_head_dim"] = c.rope_dim;
  if (fp8) j["quantization_config"] = fp8_config();
  j["rms_norm_eps"] = c.rms_eps;
  if (c.yarn_factor > 1) {
    j["rope_scaling"] = {{"beta_fast", c.yarn_beta_fast},
                         {"beta_slow", c.yarn_beta_slow},
                         {"factor", c.yarn_factor},
                         {"mscale", m.mscale},
                         {"mscale_all_dim", m.mscale},
                         {"original_max_position_embeddings", c.yarn_original_max},
                         {"type", "yarn"}};
  }
  j["rope_theta"] = c.rope_theta;
  j["tie_word_embeddings"] = m.tied;
  j["torch_dtype"] = "bfloat16";
  j["v_head_dim"] = m.value_dim;
  j["vocab_size"] = c.vocabulary;
  j["attnscope_block_size"] = m.block_tokens;
  j["attnscope_latent_rows"] = m.latent_record == AS_RECORD_BF16 ? "bf16" : "fp8";
  j["attnscope_latent_scale"] = scale_word(m.latent_scale);
  if (m.indexer) {
    j["attnscope_index_scale"] = scale_word(m.index_scale);
    j["attnscope_hadamard"] = m.hadamard;
    std::vector<int> layers;
    for (int i = 0; i < c.published_layers(); ++i) {
      if (c.compress_ratios[static_cast<std::size_t>(i)] == 1) layers.push_back(i);
    }
    if (std::ssize(layers) != c.published_layers()) j["attnscope_indexer_layers"] = layers;
  }
  if (c.num_layers() != c.published_layers()) j["attnscope_layers"] = c.layers;
  return j;
}

}  // namespace attnscope
