// Hugging Face config.json of architecture DeepseekV4ForCausalLM, or DeepSeek's own
// inference/config.json. Vocabulary, MoE and hyper-connection keys are accepted and not used.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/family/deepseek_v4/config_keys.h"
#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/family/deepseek_v4/second_config.h"
#include "engine/family/fp8_config.h"
#include "engine/io/json_object.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

constexpr const char* kV41Hint =
    "ratio 2 belongs to V4.1, whose attention and cache rows differ and which is not supported; "
    "use a V4 configuration (ratios 0, 4, 128)";
constexpr std::int64_t kMostLayers = 4096;
constexpr std::int64_t kMostRead = 1 << 20;  // validate() is stricter; this keeps ints in range

int narrow(std::int64_t n) { return static_cast<int>(n); }

// What attention of this kind has not.
void check_unsupported(JsonObject& root) {
  if (root.boolean("attention_bias", false)) {
    root.fail("attention_bias", "true is not supported",
              "the projections of V4 have no bias; allowed: false");
  }
  check_fp8_config(root);
}

// Ratios by the names of layer_types.
std::vector<int> ratios_from_types(JsonObject& root, std::size_t num_layers) {
  std::int64_t c4 = 4;
  std::int64_t c128 = 128;
  if (root.has("compress_rates")) {
    JsonObject rates = root.object("compress_rates");
    c4 = rates.integer("compressed_sparse_attention", 4, 4, 4);
    c128 = rates.integer("heavily_compressed_attention", 128, 128, 128);
  }
  const auto types = root.texts("layer_types");
  if (types.size() < num_layers) {
    root.fail("layer_types", fmt::format("has {} entries for {} layers", types.size(), num_layers),
              "one entry a layer");
    return {};
  }
  std::vector<int> ratios;
  for (std::size_t i = 0; i < num_layers; ++i) {
    if (types[i] == "sliding_attention") {
      ratios.push_back(0);
    } else if (types[i] == "compressed_sparse_attention") {
      ratios.push_back(narrow(c4));
    } else if (types[i] == "heavily_compressed_attention") {
      ratios.push_back(narrow(c128));
    } else {
      root.fail(fmt::format("layer_types[{}]", i), shown_name(types[i]) + " is not supported",
                "allowed: sliding_attention, compressed_sparse_attention, "
                "heavily_compressed_attention");
      return {};
    }
  }
  return ratios;
}

// Entries beyond num_layers belong to draft layers (read_draft_ratios); 1 is another spelling of 0
// (window only).
std::vector<int> ratios_from_list(JsonObject& root, std::size_t num_layers) {
  const auto list = root.integers("compress_ratios", 0, kMostRead);
  if (list.size() < num_layers) {
    root.fail("compress_ratios",
              fmt::format("has {} entries for {} layers", list.size(), num_layers),
              "one entry a layer; further ones are those of draft layers");
    return {};
  }
  std::vector<int> ratios;
  for (std::size_t i = 0; i < num_layers; ++i) {
    const int r = narrow(list[i]);
    if (r == 2) root.fail(fmt::format("compress_ratios[{}]", i), "2 is not supported", kV41Hint);
    ratios.push_back(r == 1 ? 0 : r);
  }
  if (!root.has("layer_types")) return ratios;
  const std::vector<int> types = ratios_from_types(root, num_layers);
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] == ratios[i]) continue;
    root.fail(fmt::format("layer_types[{}]", i),
              fmt::format("means ratio {}, but compress_ratios[{}] is {}", types[i], i, list[i]),
              "the two lists must agree");
    break;
  }
  return ratios;
}

std::vector<int> read_ratios(JsonObject& root, std::size_t num_layers, bool hugging_face) {
  const bool has_ratios = root.has("compress_ratios");
  if (has_ratios || !hugging_face) return ratios_from_list(root, num_layers);
  if (root.has("layer_types")) return ratios_from_types(root, num_layers);
  root.fail("compress_ratios", "required key is missing, and so is layer_types",
            "one ratio a layer: 0 (window only), 4 or 128, as in the published config.json");
  return {};
}

// Of the layers that predict one token more. Without their number there are as many as have
// entries, and one without an entry has a window only. DSpark drafts otherwise: with blocks of
// tokens, which are not supported.
std::vector<int> read_draft_ratios(JsonObject& root, const ConfigKeys& keys,
                                   std::size_t num_layers) {
  std::vector<int> ratios;
  if (root.has("compress_ratios")) {
    const auto list = root.integers("compress_ratios", 0, kMostRead);
    for (std::size_t i = num_layers; i < list.size(); ++i) {
      ratios.push_back(list[i] == 1 ? 0 : narrow(list[i]));
    }
  }
  const std::int64_t count =
      root.integer(keys.draft_layers, 0, kMostLayers, static_cast<std::int64_t>(ratios.size()));
  const bool dspark = root.has("dspark_block_size");
  ratios.resize(dspark ? 0 : static_cast<std::size_t>(count), 0);
  return ratios;
}

void read_yarn(JsonObject& yarn, ModelConfig& c, const char* factor, const char* original_max) {
  constexpr double kHuge = 1e12;
  c.yarn_factor = yarn.number(factor, 1.0, kHuge);
  c.yarn_original_max = yarn.number(original_max, 1.0, kHuge);
  c.yarn_beta_fast = yarn.number("beta_fast", 0.0, kHuge, c.yarn_beta_fast);
  c.yarn_beta_slow = yarn.number("beta_slow", 0.0, kHuge, c.yarn_beta_slow);
}

void check_yarn_type(JsonObject& scaling) {
  const char* key = scaling.has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling.text(key);
  if (type != "yarn" && type != "deepseek_yarn") {
    scaling.fail(key, shown_name(type) + " is not supported", "allowed: yarn");
  }
  if (scaling.has("attention_factor") && scaling.number("attention_factor", 0, 1e12) != 1) {
    scaling.fail("attention_factor", "amplitudes are not scaled in V4", "allowed: 1");
  }
  if (!scaling.boolean("truncate", true)) {
    scaling.fail("truncate", "false is not supported", "allowed: true");
  }
  constexpr double kAny = 1e12;
  if (scaling.number("mscale", 0, kAny, 0) != scaling.number("mscale_all_dim", 0, kAny, 0)) {
    scaling.fail("mscale", "amplitudes are not scaled in V4",
                 "allowed: the same as mscale_all_dim");
  }
}

// Rotary embedding: rope_theta and rope_scaling at the top, or rope_parameters {main, compress}.
void read_hf_rope(JsonObject& root, ModelConfig& c) {
  constexpr double kHuge = 1e12;
  if (root.has("rope_parameters")) {
    JsonObject parameters = root.object("rope_parameters");
    JsonObject main = parameters.object("main");
    main.choice("rope_type", {"default"}, "default");
    c.rope_theta = main.number("rope_theta", 1.0, kHuge);
    JsonObject compress = parameters.object("compress");
    c.compress_rope_theta = compress.number("rope_theta", 1.0, kHuge);
    check_yarn_type(compress);
    read_yarn(compress, c, "factor", "original_max_position_embeddings");
    return;
  }
  c.rope_theta = root.number("rope_theta", 1.0, kHuge);
  c.compress_rope_theta = root.number("compress_rope_theta", 1.0, kHuge);
  JsonObject scaling = root.object("rope_scaling");
  check_yarn_type(scaling);
  read_yarn(scaling, c, "factor", "original_max_position_embeddings");
}

ModelConfig read_config(JsonObject& root, const ConfigKeys& keys, bool hugging_face) {
  const std::int64_t latent = as_row_width(AS_RECORD_LATENT);
  const std::int64_t key = as_row_width(AS_RECORD_INDEX_FP8);
  ModelConfig c;
  c.hidden = narrow(root.integer(keys.hidden, 1, kMostRead));
  c.heads = narrow(root.integer(keys.heads, 1, kMostRead));
  root.integer("num_key_value_heads", 1, 1, 1);
  c.head_dim = narrow(root.integer(keys.head_dim, latent, latent));
  root.integer(keys.rope_dim, c.rope_dim, c.rope_dim);
  c.q_lora = narrow(root.integer(keys.q_lora, 1, kMostRead));
  c.o_lora = narrow(root.integer(keys.o_lora, 1, kMostRead));
  c.o_groups = narrow(root.integer(keys.o_groups, 1, kMostRead));
  c.window = narrow(root.integer(keys.window, 1, kMostRead));
  c.index_heads = narrow(root.integer(keys.index_heads, 1, kMostRead));
  c.index_dim = narrow(root.integer(keys.index_dim, key, key));
  c.index_topk = narrow(root.integer(keys.index_topk, 1, kMostRead));
  c.rms_eps = root.number(keys.rms_eps, 0.0, 1.0, c.rms_eps);
  c.max_position = root.integer(keys.max_position, 1, std::int64_t{1} << 40, c.max_position);
  if (hugging_face) {
    read_hf_rope(root, c);
  } else {
    constexpr double kHuge = 1e12;
    c.rope_theta = root.number(keys.rope_theta, 1.0, kHuge);
    c.compress_rope_theta = root.number(keys.compress_rope_theta, 1.0, kHuge);
    read_yarn(root, c, keys.yarn_factor, keys.yarn_original_max);
  }
  const auto num_layers = static_cast<std::size_t>(root.integer(keys.num_layers, 1, kMostLayers));
  c.compress_ratios = read_ratios(root, num_layers, hugging_face);
  c.draft_ratios = read_draft_ratios(root, keys, num_layers);
  return c;
}

}  // namespace

Result<ModelConfig> deepseek_v4_read_config(const std::string& path, const nlohmann::json& file) {
  JsonReader reader(path);
  JsonObject root(reader, file);
  check_unsupported(root);
  const bool own = has_deepseek_keys(file);
  ModelConfig config = read_config(root, own ? deepseek_keys() : ConfigKeys{}, !own);
  if (!reader.ok()) return reader.error();
  if (auto ok = check_read_config(path, file, config); !ok) return ok.error();
  return config;
}

// Keys and their order as in published files.
nlohmann::ordered_json deepseek_v4_write_config(const ModelConfig& c, bool fp8) {
  nlohmann::ordered_json j;
  j["architectures"] = {"DeepseekV4ForCausalLM"};
  j["attention_bias"] = false;
  j["compress_ratios"] = c.compress_ratios;
  j["compress_rope_theta"] = c.compress_rope_theta;
  j["head_dim"] = c.head_dim;
  j["hidden_size"] = c.hidden;
  j["index_head_dim"] = c.index_dim;
  j["index_n_heads"] = c.index_heads;
  j["index_topk"] = c.index_topk;
  j["max_position_embeddings"] = c.max_position;
  j["model_type"] = "deepseek_v4";
  j["num_attention_heads"] = c.heads;
  const auto drafts = static_cast<std::size_t>(c.draft_layers);
  j["num_hidden_layers"] = c.compress_ratios.size() - drafts;
  j["num_key_value_heads"] = 1;
  j["num_nextn_predict_layers"] = drafts;  // others are not in the file
  j["o_groups"] = c.o_groups;
  j["o_lora_rank"] = c.o_lora;
  j["q_lora_rank"] = c.q_lora;
  j["qk_rope_head_dim"] = c.rope_dim;
  if (fp8) j["quantization_config"] = fp8_config();
  j["rms_norm_eps"] = c.rms_eps;
  j["rope_scaling"] = {{"beta_fast", c.yarn_beta_fast},
                       {"beta_slow", c.yarn_beta_slow},
                       {"factor", c.yarn_factor},
                       {"original_max_position_embeddings", c.yarn_original_max},
                       {"type", "yarn"}};
  j["rope_theta"] = c.rope_theta;
  j["sliding_window"] = c.window;
  j["tie_word_embeddings"] = false;
  j["torch_dtype"] = "bfloat16";
  j["vocab_size"] = c.vocabulary;
  if (c.layers.size() != c.compress_ratios.size()) {
    j["attnscope_layers"] = std::vector(c.layers.begin(), c.layers.end() - c.draft_layers);
  }
  return j;
}

}  // namespace attnscope
