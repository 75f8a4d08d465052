// Encoder-decoders as T5 (DenseAttention::sides): the layers of the encoder, then of each decoder
// block its own attention and its cross attention, as layers of their own:
//
//   sides                       published layers of T5 with two blocks on either side
//   source, source              encoder.block.0 .. 1, layer.0.SelfAttention
//   decoder, cross              decoder.block.0, layer.0.SelfAttention, layer.1.EncDecAttention
//   decoder, cross              decoder.block.1, likewise
//
// A request is its source, then what the decoder begins with, on one axis of tokens. A layer
// changes the rows of its own side alone: what attention gives for others is zero. Keys and values
// of cross attention are made of the source's rows behind the encoder's last norm, when the source
// is computed, and stay.
#pragma once

#include <string>

#include "engine/family/family.h"

namespace attnscope {

bool is_encoder_decoder(const ModelConfig& config);
// Of a running layer; kDecoderSide in every other model.
DenseSide dense_side(const ModelConfig& config, int layer);

// Where the weights of a published layer lie in files, without ".weight".
struct DenseNames {
  std::string norm, q, k, v, o;
};
DenseNames t5_names(const ModelConfig& config, int published);
inline constexpr const char* kT5Embedding = "shared";
inline constexpr const char* kT5SourceNorm = "encoder.final_layer_norm";
inline constexpr const char* kT5Norm = "decoder.final_layer_norm";
// The bias by distance that all layers of a side share.
const char* t5_bias(DenseSide side);

// As dense_read_config and dense_write_config, of files that say model_type t5.
Result<ModelConfig> t5_read_config(const std::string& path, const nlohmann::json& file);
nlohmann::ordered_json t5_write_config(const ModelConfig& config);
Result<void> t5_validate(const ModelConfig& config);

}  // namespace attnscope
