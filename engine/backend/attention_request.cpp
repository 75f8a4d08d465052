#include "engine/backend/attention_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/family/family.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "engine/io/json_object.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostAsked = 1 << 20;
constexpr int kLatentDims = 512, kLatentRopeDims = 64;

int asked_int(std::int64_t n) { return static_cast<int>(n); }

// The first of `keys` that is there, else the first of all, whose absence is then an error.
int first_asked(JsonObject& root, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (root.has(key)) return asked_int(root.integer(key, 1, kMostAsked));
  }
  return asked_int(root.integer(*keys.begin(), 1, kMostAsked));
}

std::string asked_model_type(JsonObject& root) {
  return root.has("model_type") ? root.text("model_type") : std::string();
}

// Names of the file that a family of ours reads.
bool family_reads(JsonObject& root) {
  std::vector<std::string> names;
  if (root.has("architectures")) names = root.texts("architectures");
  const std::string type = asked_model_type(root);
  for (const Family* family : families()) {
    for (const PublishedModel& p : family->published) {
      if (type == p.model_type || std::ranges::find(names, p.architecture) != names.end()) {
        return true;
      }
    }
  }
  return names.empty() && type.empty() && !root.has("num_attention_heads");
}

AttentionLayerKind asked_kind(const std::string& type) {
  if (type == "mamba" || type == "falcon_mamba") return AttentionLayerKind::kMamba1;
  if (type == "mamba2") return AttentionLayerKind::kMamba2;
  return AttentionLayerKind::kAttention;
}

AttentionType attention_type_of(JsonObject& root, const std::string& type) {
  for (const char* encoder : {"bert", "roberta", "xlm-roberta", "distilbert", "modernbert"}) {
    if (type == encoder) return AttentionType::kEncoderOnly;
  }
  return root.boolean("is_encoder_decoder", false) ? AttentionType::kEncoderDecoder
                                                   : AttentionType::kDecoder;
}

// vLLM takes bfloat16 for checkpoints in float32, where nobody says otherwise.
void read_asked_dtype(JsonObject& root, ReadRequest& read) {
  const char* key = root.has("dtype") ? "dtype" : "torch_dtype";
  const std::string dtype = root.choice(key, {"bfloat16", "float16", "float32"}, "bfloat16");
  read.request.dtype = dtype == "float32" ? "bfloat16" : dtype;
  if (dtype == "float32") read.note += " Weights in float32 are run in bfloat16.";
}

void read_asked_latent(JsonObject& root, AttentionRequest& request) {
  const int latent = asked_int(root.integer("kv_lora_rank", 1, kMostAsked));
  const int rope = asked_int(root.integer("qk_rope_head_dim", 0, kMostAsked, kLatentRopeDims));
  request.mla = true;
  request.sparse = root.has("index_topk");
  request.kv_heads = 1;
  request.head_size = latent + rope;
  request.value_size = latent;
  request.nope_dim = asked_int(root.integer("qk_nope_head_dim", 0, kMostAsked, 0));
}

void read_asked_heads(JsonObject& root, AttentionRequest& request) {
  request.kv_heads = asked_int(root.integer("num_key_value_heads", 1, kMostAsked, request.heads));
  if (root.has("head_dim") || root.has("d_kv")) {
    request.head_size = first_asked(root, {"head_dim", "d_kv"});
  } else {
    const int hidden = first_asked(root, {"hidden_size", "d_model", "n_embd"});
    if (request.heads > 0) request.head_size = hidden / request.heads;
    if (request.heads > 0 && hidden % request.heads != 0) {
      root.fail("hidden_size", fmt::format("{} is no multiple of {} heads", hidden, request.heads),
                "give head_dim, or a number of heads that divides it");
    }
  }
  request.value_size = asked_int(root.integer("v_head_dim", 1, kMostAsked, request.head_size));
}

// Layers with a window: as layer_types says, else all.
void read_asked_window(JsonObject& root, AttentionRequest& request) {
  if (!root.has("sliding_window") || !root.boolean("use_sliding_window", true)) return;
  request.window = asked_int(root.integer("sliding_window", 1, kMostAsked));
  request.windowed = request.layers;
  if (!root.has("layer_types")) return;
  const auto types = root.texts("layer_types");
  request.windowed = static_cast<int>(std::ranges::count(types, "sliding_attention"));
  if (request.windowed == 0) request.window = 0;
}

void read_asked_keys(JsonObject& root, ReadRequest& read) {
  AttentionRequest& request = read.request;
  const std::string type = asked_model_type(root);
  request.model_type = type;
  request.kind = asked_kind(type);
  read_asked_dtype(root, read);
  request.layers = asked_int(root.integer("num_hidden_layers", 1, kMostAsked, 1));
  if (request.kind != AttentionLayerKind::kAttention) return;
  request.type = attention_type_of(root, type);
  request.heads = first_asked(root, {"num_attention_heads", "num_heads", "n_head", "n_heads"});
  if (root.has("kv_lora_rank")) {
    read_asked_latent(root, request);
  } else {
    read_asked_heads(root, request);
  }
  read_asked_window(root, request);
  request.soft_cap = root.number("attn_logit_softcapping", 0, 1e6, 0);
  request.alibi = root.boolean("alibi", type == "bloom" || type == "mpt");
  request.sinks = type == "gpt_oss";
}

// What vLLM calls rows of such a record. Static scales are one a tensor or one a head.
void ask_cache(std::int32_t placed, AttentionRequest& request) {
  const std::int32_t record = placed & ~AS_RECORD_HND;
  request.head_scales = record == AS_RECORD_FP8_HEAD || record == AS_RECORD_E5M2_HEAD;
  switch (record) {
    case AS_RECORD_F16:
      request.cache_dtype = "float16";
      break;
    case AS_RECORD_FP8_TENSOR:
    case AS_RECORD_FP8_HEAD:
      request.cache_dtype = "fp8_e4m3";
      break;
    case AS_RECORD_E5M2_TENSOR:
    case AS_RECORD_E5M2_HEAD:
      request.cache_dtype = "fp8_e5m2";
      break;
    case AS_RECORD_FP8_TOKEN_HEAD:
      request.cache_dtype = "fp8_per_token_head";
      break;
    case AS_RECORD_E5M2_TOKEN_HEAD:
      request.cache_dtype = "fp8_e5m2_per_token_head";
      break;
    case AS_RECORD_INT8_TOKEN_HEAD:
      request.cache_dtype = "int8_per_token_head";
      break;
    default:
      break;
  }
}

}  // namespace

AttentionRequest attention_request(const ModelConfig& config) {
  AttentionRequest request;
  request.model = config.name;
  request.model_type = config.family;
  request.layers = config.published_layers();
  request.heads = config.heads * config.parallel.size;
  request.kv_heads = config.kv_heads;
  request.head_size = request.value_size = config.head_dim;
  if (config.family == "dense") {
    const auto& windows = config.dense.windows;
    request.windowed =
        static_cast<int>(std::ranges::count_if(windows, [](int window) { return window > 0; }));
    if (request.windowed > 0) request.window = *std::ranges::max_element(windows);
    request.soft_cap = config.dense.soft_cap;
    request.sinks = config.dense.sinks;
    request.alibi = config.dense.alibi_bias_max > 0;
    ask_cache(config.dense.cache_record, request);
    request.first_tokens_16bit = config.dense.first_tokens_16bit;
    if (config.dense.encoder) request.type = AttentionType::kEncoderOnly;
    if (!config.dense.sides.empty()) request.type = AttentionType::kEncoderDecoder;
    return request;
  }
  request.mla = true;
  request.kv_heads = 1;
  if (config.family == "mla") {
    request.head_size = kLatentDims + kLatentRopeDims;
    request.value_size = kLatentDims;
    request.nope_dim = config.mla.nope_dim;
    request.sparse = config.mla.indexer;
    return request;
  }
  // Its layers hand window and selection to the kernel as one list of rows.
  request.sparse = request.sinks = true;
  request.cache_dtype = "fp8_ds_mla";
  return request;
}

Result<ReadRequest> read_attention_request(const std::string& given) {
  std::error_code code;
  const bool folder = std::filesystem::is_directory(given, code);
  const std::string path = folder ? (std::filesystem::path(given) / "config.json").string() : given;
  Result<std::string> text = read_text_file(path);
  if (!text) return text.error();
  Result<nlohmann::json> json = parse_json(*text, path);
  if (!json) return json.error();
  JsonReader reader(path);
  JsonObject root(reader, *json);
  ReadRequest read;
  const bool ours = family_reads(root);
  if (!reader.ok()) return reader.error();
  if (ours) {
    Result<ModelConfig> config = read_hf_config(given);
    if (config) {
      read.request = attention_request(*config);
      return read;
    }
    // A selection without a latent row is more than the keys below say.
    const bool own_selection = root.has("index_topk") && !root.has("kv_lora_rank");
    if (own_selection || root.keys().empty()) return config.error();
    read.note =
        fmt::format("Read by its own keys: it does not run here ({}).", config.error().message);
  }
  read.request.model = given;
  if (root.has("text_config")) {
    JsonObject inner = root.object("text_config");
    read_asked_keys(inner, read);
  } else {
    read_asked_keys(root, read);
  }
  if (!reader.ok()) return reader.error();
  return read;
}

}  // namespace attnscope
