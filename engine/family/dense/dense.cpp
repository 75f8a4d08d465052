#include "engine/family/dense/dense.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "engine/family/dense/encoder_decoder.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

constexpr DealtNumber kDenseDealt[] = {
    {"heads", &ModelConfig::heads},
    {"KV heads", &ModelConfig::kv_heads, true},
};

constexpr const char* kDenseSwitches[] = {"attention_form"};
constexpr const char* kDenseTypes[] = {"full", "sliding", "chunked", "encoder", "cross"};

constexpr PublishedModel kDenseModels[] = {
    {"LlamaForCausalLM", "llama"},        {"MistralForCausalLM", "mistral"},
    {"Qwen3ForCausalLM", "qwen3"},        {"Gemma3ForCausalLM", "gemma3_text"},
    {"Llama4ForCausalLM", "llama4_text"}, {"GptOssForCausalLM", "gpt_oss"},
    {"T5ForConditionalGeneration", "t5"},
};

constexpr NamedCache kDenseCaches[] = {{kKeyCache, "k", "keys"},
                                       {kValueCache, "v", "values"},
                                       {kWideKeyCache, "k_wide", "keys of first tokens"},
                                       {kWideValueCache, "v_wide", "values of first tokens"}};
constexpr const char* kFirstGroup = "first";

bool is_wide(const NamedCache& named) { return named.id.nth == 1; }

const char* dense_type(const ModelConfig& config, int layer) {
  if (config.dense.encoder || dense_side(config, layer) == kSourceSide) return kDenseTypes[3];
  if (dense_side(config, layer) == kCrossSide) return kDenseTypes[4];
  return kDenseTypes[dense_chunk(config, layer) > 0 ? 2 : dense_window(config, layer) > 0 ? 1 : 0];
}

CacheSpec dense_spec(int layer, const NamedCache& named, const ModelConfig& config) {
  CacheSpec s;
  s.layer = layer;
  s.id = named.id;
  s.name = named.name;
  s.content = named.content;
  s.record = config.dense.cache_record;
  s.num_kv_heads = config.kv_heads;
  s.head_dim = config.head_dim;
  s.head_dim_v = named.id.role == AS_CACHE_V ? config.head_dim : 0;
  if (is_wide(named)) {
    s.record = AS_RECORD_BF16;
    s.retention = {GroupKind::kFirst, config.dense.block_tokens / 2,
                   config.dense.first_tokens_16bit};
    s.group_name = kFirstGroup;
    return s;
  }
  const int window = dense_window(config, layer), chunk = dense_chunk(config, layer);
  const GroupKind kind = chunk > 0    ? GroupKind::kChunked
                         : window > 0 ? GroupKind::kSliding
                                      : GroupKind::kFull;
  s.retention = {kind, config.dense.block_tokens, chunk > 0 ? chunk : window};
  s.group_name = is_encoder_decoder(config) ? kDenseTypes[0] : dense_type(config, layer);
  return s;
}

}  // namespace

const Family& dense() {
  static const Family kFamily = {
      .name = "dense",
      .published = kDenseModels,
      .presets = dense_presets,
      .example = dense_example,
      .read_config = dense_read_config,
      .write_config = dense_write_config,
      .validate = dense_validate,
      .layer_types = kDenseTypes,
      .layer_type = dense_type,
      .switches = [](const ModelConfig&) -> std::span<const char* const> { return kDenseSwitches; },
      .selects = [](const ModelConfig&, int) { return false; },
      .rope = dense_rope,
      .caches = dense_caches,
      .shares_with = dense_shares_with,
      .cache_names = dense_cache_names,
      .graph = dense_graph,
      .weights = dense_weights,
      .published_name = dense_published_name,
      .head_copy = nullptr,
      .second_targets = dense_second_targets,
      .dealt = kDenseDealt,
      .set_layer_numbers = dense_layer_numbers,
      .set_step_numbers = dense_step_numbers,
      .step_tensors = dense_step_tensors,
      .logical_lists = dense_logical_lists,
      .constants = dense_constants,
      .list_columns = [](std::int64_t, const ModelConfig&) { return std::int64_t{0}; },
  };
  return kFamily;
}

int dense_window(const ModelConfig& config, int layer) {
  const int published = config.layers[static_cast<std::size_t>(layer)];
  return config.dense.windows[static_cast<std::size_t>(published)];
}

int dense_chunk(const ModelConfig& config, int layer) {
  const int published = config.layers[static_cast<std::size_t>(layer)];
  const std::vector<int>& chunks = config.dense.chunks;
  return chunks.empty() ? 0 : chunks[static_cast<std::size_t>(published)];
}

int dense_chunk(const ModelConfig& config) {
  int chunk = 0;
  for (int i = 0; i < config.num_layers(); ++i) chunk = std::max(chunk, dense_chunk(config, i));
  return chunk;
}

int dense_shares_with(const ModelConfig& config, int layer) {
  const DenseAttention& d = config.dense;
  const int published = config.layers[static_cast<std::size_t>(layer)];
  const int first = config.published_layers() - d.shared_layers;
  if (published < first) return -1;
  const auto sees = [&](int i) {
    const auto n = static_cast<std::size_t>(i);
    return std::pair{d.windows[n], d.chunks.empty() ? 0 : d.chunks[n]};
  };
  int from = first - 1;
  while (from >= 0 && sees(from) != sees(published)) --from;
  const auto runs = std::ranges::find(config.layers, from);
  return runs == config.layers.end() ? -1 : static_cast<int>(runs - config.layers.begin());
}

std::int64_t dense_scales_beside(const ModelConfig& config) {
  const as_row_format* format = as_row_format_of(config.dense.cache_record);
  if (format == nullptr || format->parts[0].scale == AS_CODE_NONE) return 0;
  if (format->parts[0].per == AS_PER_HEAD) return config.kv_heads;
  return format->parts[0].per == AS_PER_TENSOR ? 1 : 0;
}

int dense_first_tokens(const ModelConfig& config, int layer) {
  const bool forgets = dense_window(config, layer) > 0 || dense_chunk(config, layer) > 0;
  return forgets ? 0 : config.dense.first_tokens_16bit;
}

std::span<const std::int32_t> dense_cache_records() {
  static constexpr std::int32_t kRecords[] = {AS_RECORD_BF16,           AS_RECORD_F16,
                                              AS_RECORD_FP8_TENSOR,     AS_RECORD_FP8_HEAD,
                                              AS_RECORD_FP8_TOKEN_HEAD, AS_RECORD_E5M2_TENSOR,
                                              AS_RECORD_E5M2_HEAD,      AS_RECORD_E5M2_TOKEN_HEAD,
                                              AS_RECORD_INT8_TOKEN_HEAD};
  return kRecords;
}

const char* dense_page_layout(const ModelConfig& config) {
  return (config.dense.cache_record & AS_RECORD_HND) != 0 ? "HND" : "NHD";
}

bool dense_looks_ahead(const ModelConfig& config, int layer) {
  const DenseSide side = dense_side(config, layer);
  if (is_encoder_decoder(config)) return side != kDecoderSide;
  const bool whole = dense_window(config, layer) == 0 && dense_chunk(config, layer) == 0;
  return config.dense.encoder || (whole && !config.dense.mask.empty());
}

std::int32_t dense_form(const ModelConfig& config, int layer) {
  const std::int32_t form = config.switches.attention_form;
  const bool whole = dense_window(config, layer) == 0 && dense_chunk(config, layer) == 0 &&
                     config.dense.mask.empty() && !is_encoder_decoder(config);
  return form == AS_PAGED_CASCADE && !whole ? std::int32_t{AS_PAGED_ONE_PASS} : form;
}

std::vector<float> dense_slopes(int heads, double bias_max) {
  const auto whole = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  std::vector<float> slopes;
  for (int h = 0; h < heads; ++h) {
    const double share = h < whole ? static_cast<double>(h + 1) / whole
                                   : static_cast<double>(2 * (h - whole) + 1) / (2 * whole);
    slopes.push_back(static_cast<float>(std::exp2(-bias_max * share)));
  }
  return slopes;
}

as_rope dense_rope(const ModelConfig& config, int layer) {
  const bool local = dense_window(config, layer) > 0 && config.dense.local_rope_theta > 0;
  const auto published = static_cast<std::size_t>(config.layers[static_cast<std::size_t>(layer)]);
  as_rope rope{};
  rope.factor = 1;
  if (!config.dense.unrotated.empty() && config.dense.unrotated[published] != 0) return rope;
  rope.base = local ? config.dense.local_rope_theta : config.rope_theta;
  rope.table.reserved = AS_ROPE_FP32;
  return rope;
}

std::span<const NamedCache> dense_cache_names() { return kDenseCaches; }

std::vector<CacheSpec> dense_caches(const ModelConfig& config) {
  std::vector<CacheSpec> specs;
  for (int i = 0; i < config.num_layers() && !config.dense.encoder; ++i) {
    if (dense_shares_with(config, i) >= 0 || dense_side(config, i) == kSourceSide) continue;
    for (const NamedCache& named : kDenseCaches) {
      if (is_wide(named) && dense_first_tokens(config, i) == 0) continue;
      specs.push_back(dense_spec(i, named, config));
    }
  }
  return specs;
}

}  // namespace attnscope
