#include "engine/family/dense/encoder_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/family/dense/dense.h"
#include "engine/family/dense/own_keys.h"
#include "engine/io/json_object.h"
#include "kernels/params/paged_params.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostBlocks = 1024, kMostSize = 1 << 20;

std::ptrdiff_t count_side(const ModelConfig& c, int before, DenseSide side) {
  return std::count(c.dense.sides.begin(), c.dense.sides.begin() + before, side);
}

Result<void> t5_refusal(const std::string& key, const std::string& value,
                        const std::string& allowed) {
  return bad_input(fmt::format("{}: {} is not supported", key, value), "allowed: " + allowed);
}

}  // namespace

bool is_encoder_decoder(const ModelConfig& config) { return !config.dense.sides.empty(); }

DenseSide dense_side(const ModelConfig& config, int layer) {
  if (!is_encoder_decoder(config)) return kDecoderSide;
  const int published = config.layers[static_cast<std::size_t>(layer)];
  return static_cast<DenseSide>(config.dense.sides[static_cast<std::size_t>(published)]);
}

DenseNames t5_names(const ModelConfig& config, int published) {
  const auto side = static_cast<DenseSide>(config.dense.sides[static_cast<std::size_t>(published)]);
  const std::string block =
      fmt::format("{}.block.{}.layer.{}.", side == kSourceSide ? "encoder" : "decoder",
                  count_side(config, published, side), side == kCrossSide ? 1 : 0);
  const std::string attention =
      block + (side == kCrossSide ? "EncDecAttention." : "SelfAttention.");
  return {block + "layer_norm", attention + "q", attention + "k", attention + "v", attention + "o"};
}

const char* t5_bias(DenseSide side) {
  return side == kSourceSide ? "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"
                             : "decoder.block.0.layer.0.SelfAttention.relative_attention_bias";
}

Result<ModelConfig> t5_read_config(const std::string& path, const nlohmann::json& file) {
  JsonReader reader(path);
  JsonObject root(reader, file);
  if (root.has("quantization_config")) {
    root.fail("quantization_config", "weights that are quantised are not supported",
              "use a checkpoint in bf16, f16 or f32");
  }
  const auto size = [&](const char* key, std::int64_t most, std::int64_t otherwise) {
    return static_cast<int>(otherwise > 0 ? root.integer(key, 1, most, otherwise)
                                          : root.integer(key, 1, most));
  };
  ModelConfig c;
  c.family = "dense";
  c.hidden = size("d_model", kMostSize, 0);
  c.heads = c.kv_heads = size("num_heads", kMostSize, 0);
  c.head_dim = c.rope_dim = size("d_kv", kMostSize, 64);
  c.window = 0;
  c.rms_eps = root.number("layer_norm_epsilon", 0, 1, 1e-6);
  c.max_position = root.integer("n_positions", 1, std::int64_t{1} << 40, 131072);
  const int source = size("num_layers", kMostBlocks, 0);
  const int blocks = size("num_decoder_layers", kMostBlocks, source);
  DenseAttention& d = c.dense;
  d.sides.assign(static_cast<std::size_t>(source), kSourceSide);
  for (int i = 0; i < blocks; ++i) d.sides.insert(d.sides.end(), {kDecoderSide, kCrossSide});
  const std::size_t layers = d.sides.size();
  c.compress_ratios.assign(layers, 0);
  d.windows.assign(layers, 0);
  d.unrotated.assign(layers, 1);
  d.scale = 1;
  d.bias_buckets = size("relative_attention_num_buckets", 4096, 32);
  d.bias_distance = size("relative_attention_max_distance", kMostSize, 128);
  d.tied = root.boolean("tie_word_embeddings", true);
  d.block_tokens = size("attnscope_block_size", kMostSize, d.block_tokens);
  d.decoder_prompt = size("attnscope_decoder_prompt", kMostSize, 1);
  read_own_keys(root, d);
  if (!reader.ok()) return reader.error();
  return c;
}

nlohmann::ordered_json t5_write_config(const ModelConfig& c) {
  const DenseAttention& d = c.dense;
  const int published = c.published_layers();
  nlohmann::ordered_json j;
  j["architectures"] = {"T5ForConditionalGeneration"};
  j["d_kv"] = c.head_dim;
  j["d_model"] = c.hidden;
  j["is_encoder_decoder"] = true;
  j["layer_norm_epsilon"] = c.rms_eps;
  j["model_type"] = "t5";
  j["n_positions"] = c.max_position;
  j["num_decoder_layers"] = count_side(c, published, kCrossSide);
  j["num_heads"] = c.heads;
  j["num_layers"] = count_side(c, published, kSourceSide);
  j["relative_attention_max_distance"] = d.bias_distance;
  j["relative_attention_num_buckets"] = d.bias_buckets;
  j["tie_word_embeddings"] = d.tied;
  j["torch_dtype"] = "bfloat16";
  j["vocab_size"] = c.vocabulary;
  j["attnscope_block_size"] = d.block_tokens;
  j["attnscope_decoder_prompt"] = d.decoder_prompt;
  if (d.cache_record != AS_RECORD_BF16) j["attnscope_cache_layout"] = dense_page_layout(c);
  if (!d.mask.empty()) j["attnscope_mask"] = d.mask;
  if (!d.score.empty()) j["attnscope_score"] = d.score;
  if (c.num_layers() != published) j["attnscope_layers"] = c.layers;
  return j;
}

Result<void> t5_validate(const ModelConfig& c) {
  const DenseAttention& d = c.dense;
  const auto count = static_cast<std::size_t>(c.published_layers());
  const auto source = static_cast<std::size_t>(std::ranges::count(d.sides, kSourceSide));
  bool ordered = d.sides.size() == count && source > 0 && source < count;
  for (std::size_t i = 0; ordered && i < count; ++i) {
    const DenseSide due = i < source              ? kSourceSide
                          : (i - source) % 2 == 0 ? kDecoderSide
                                                  : kCrossSide;
    ordered = d.sides[i] == due;
  }
  if (!ordered || (count - source) % 2 != 0) {
    return t5_refusal("num_layers, num_decoder_layers", fmt::format("{} layers", count),
                      "layers of the encoder, then of each block of the decoder its own attention "
                      "and its cross attention");
  }
  const bool other =
      d.encoder || d.sinks || d.qk_norm || d.alibi_bias_max > 0 || d.shared_layers > 0 ||
      !d.chunks.empty() || c.kv_heads != c.heads || d.weight_plus_one ||
      std::ranges::any_of(d.windows, [](int n) { return n != 0; }) || d.unrotated.size() != count ||
      std::ranges::any_of(d.unrotated, [](int n) { return n == 0; });
  if (other) {
    return t5_refusal("model_type",
                      "an encoder-decoder with windows, chunks, sinks, shared rows, ALiBi, rotary "
                      "embeddings or grouped heads",
                      "attention as T5 has it");
  }
  if (d.decoder_prompt < 1 || d.decoder_prompt > 1 << 20) {
    return t5_refusal("attnscope_decoder_prompt", fmt::format("{}", d.decoder_prompt),
                      "1 to 1048576");
  }
  for (const int causal : {0, 1}) {
    if (as_bias_buckets_fit(d.bias_buckets, d.bias_distance, causal) != 0) continue;
    return t5_refusal(
        "relative_attention_num_buckets",
        fmt::format("{} with relative_attention_max_distance {}", d.bias_buckets, d.bias_distance),
        "an even number from 4 on, and a distance above half of it");
  }
  return {};
}

}  // namespace attnscope
