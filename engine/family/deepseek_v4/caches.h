// The caches of DeepSeek-V4's layers. SWA-only layers have the window's latent rows; C4A and C128A
// layers compressed entries and the states of their compressor too, C4A layers the index keys and
// the states of the indexer's compressor.
#pragma once

#include <span>
#include <vector>

#include "engine/family/family.h"

namespace attnscope {

inline constexpr CacheId kSwaCache{AS_CACHE_KV, 0};            // "swa": latent rows of the window
inline constexpr CacheId kMainCache{AS_CACHE_KV, 1};           // "main": compressed entries
inline constexpr CacheId kIndexCache{AS_CACHE_INDEX, 0};       // "index": their keys
inline constexpr CacheId kMainStateCache{AS_CACHE_STATE, 0};   // "state": not yet compressed
inline constexpr CacheId kIndexStateCache{AS_CACHE_STATE, 1};  // "index_state"

// As Family::cache_names and caches.
std::span<const NamedCache> deepseek_v4_cache_names();
std::vector<CacheSpec> deepseek_v4_caches(const ModelConfig& config);

}  // namespace attnscope
