#include "engine/backend/attention_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/backend/attention_request.h"
#include "engine/family/mla/mla.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// Of the list of every published layer, which may be empty.
int layer_number(const std::vector<int>& of_layers, int published) {
  return of_layers.empty() ? 0 : of_layers[to_size(published)];
}

}  // namespace

std::string describe(const AttentionLayer& layer) {
  std::string text = "full";
  if (layer.kind != AttentionLayerKind::kAttention) {
    text = layer_kind_name(layer.kind);
  } else if (layer.mla) {
    text = layer.sparse ? "sparse MLA" : "MLA";
  }
  if (layer.window > 0) text = fmt::format("window {}", layer.window);
  if (layer.chunk > 0) text = fmt::format("chunks of {}", layer.chunk);
  if (layer.kv_of >= 0) text += fmt::format(", keys and values of layer {}", layer.kv_of);
  return text;
}

AttentionLayer attention_layer(const ModelConfig& config, int i) {
  const AttentionRequest all = attention_request(config);
  AttentionLayer layer;
  layer.kind = all.kind;
  layer.type = all.type;
  layer.heads = all.heads;
  layer.kv_heads = all.kv_heads;
  layer.head_size = all.head_size;
  layer.value_size = all.value_size;
  layer.nope_dim = all.nope_dim;
  layer.mla = all.mla;
  layer.sparse = all.sparse;
  layer.sinks = all.sinks;
  layer.soft_cap = all.soft_cap;
  layer.cache_dtype = all.cache_dtype;
  if (config.family == "dense") {
    const int published = config.layers[to_size(i)];
    layer.window = layer_number(config.dense.windows, published);
    layer.chunk = layer_number(config.dense.chunks, published);
    const bool forgets = layer.window > 0 || layer.chunk > 0;
    layer.first_tokens_16bit = forgets ? 0 : all.first_tokens_16bit;
    layer.scale = config.dense.scale > 0 ? config.dense.scale
                                         : 1 / std::sqrt(static_cast<double>(config.head_dim));
  } else {
    layer.scale = config.family == "mla" ? mla_scale(config)
                                         : 1 / std::sqrt(static_cast<double>(config.head_dim));
  }
  return layer;
}

std::vector<AttentionLayerGroup> attention_layers(const ModelConfig& config) {
  std::vector<AttentionLayerGroup> groups;
  for (int i = 0; i < config.num_layers(); ++i) {
    AttentionLayer layer = attention_layer(config, i);
    auto group = std::ranges::find(groups, layer, &AttentionLayerGroup::layer);
    if (group == groups.end()) {
      groups.push_back({std::move(layer), {}});
      group = std::prev(groups.end());
    }
    group->layers.push_back(config.layers[to_size(i)]);
  }
  return groups;
}

AttentionRequest layer_request(AttentionRequest request, const AttentionLayerGroup& group) {
  const AttentionLayer& layer = group.layer;
  request.kind = layer.kind;
  request.type = layer.type;
  request.heads = layer.heads;
  request.kv_heads = layer.kv_heads;
  request.head_size = layer.head_size;
  request.value_size = layer.value_size;
  request.nope_dim = layer.nope_dim;
  request.cache_dtype = layer.cache_dtype;
  request.first_tokens_16bit = layer.first_tokens_16bit;
  request.mla = layer.mla;
  request.sparse = layer.sparse;
  request.sinks = layer.sinks;
  request.alibi = !layer.alibi_slopes.empty();
  request.soft_cap = layer.soft_cap;
  request.window = layer.window;
  request.layers = static_cast<int>(group.layers.size());
  request.windowed = layer.window > 0 ? request.layers : 0;
  return request;
}

}  // namespace attnscope
