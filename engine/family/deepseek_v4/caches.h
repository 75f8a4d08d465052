// The caches of DeepSeek-V4's layers. SWA-only layers have the window's latent rows; C4A and C128A
// layers compressed entries and the states of their compressor too, C4A layers the index keys and
// the states of the indexer's compressor.
#pragma once

#include <span>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/model/model_config.h"

namespace attnscope {

inline constexpr CacheId kSwaCache{AS_CACHE_KV, 0};            // "swa": latent rows of the window
inline constexpr CacheId kMainCache{AS_CACHE_KV, 1};           // "main": compressed entries
inline constexpr CacheId kIndexCache{AS_CACHE_INDEX, 0};       // "index": their keys
inline constexpr CacheId kMainStateCache{AS_CACHE_STATE, 0};   // "state": not yet compressed
inline constexpr CacheId kIndexStateCache{AS_CACHE_STATE, 1};  // "index_state"

struct NamedCache {
  CacheId id;
  const char* name;
  const char* content;  // for people
};
// Every cache that a layer can have.
std::span<const NamedCache> deepseek_v4_cache_names();

// Of all layers that run, in the order in which they are registered.
std::vector<CacheSpec> deepseek_v4_caches(const ModelConfig& config);

// Grouped and placed.
CacheLayout build_cache_layout(const ModelConfig& config);

}  // namespace attnscope
