#include "engine/family/deepseek_v4/caches.h"

#include <algorithm>

namespace attnscope {
namespace {

constexpr int kFullBlock = 256;   // tokens of a compressed block
constexpr int kSwaBlock = 64;     // as many rows as a C4A page of kFullBlock tokens
constexpr int kC4StateBlock = 4;  // state pages stay just below a latent page
constexpr int kC128StateBlock = 8;

constexpr NamedCache kNames[] = {{kSwaCache, "swa", "latent rows"},
                                 {kMainCache, "main", "compressed entries"},
                                 {kMainStateCache, "state", "compressor states"},
                                 {kIndexCache, "index", "index keys"},
                                 {kIndexStateCache, "index_state", "indexer states"}};

CacheSpec make_spec(int layer, CacheId id) {
  const NamedCache& named = *std::ranges::find(kNames, id, &NamedCache::id);
  CacheSpec s;
  s.layer = layer;
  s.id = id;
  s.name = named.name;
  s.content = named.content;
  return s;
}

// A row is key and value at once.
CacheSpec latent(CacheSpec s, const ModelConfig& config) {
  s.record = AS_RECORD_LATENT;
  s.head_dim = s.head_dim_v = config.head_dim;
  return s;
}

// A row is [kv | score], both coff * d wide: an entry of ratio 4 pools two windows.
CacheSpec state(CacheSpec s, int ratio, int dim) {
  const int coff = ratio == 4 ? 2 : 1;
  s.record = AS_RECORD_STATE;
  s.head_dim = 2 * coff * dim;
  s.retention = {GroupKind::kSliding, ratio == 4 ? kC4StateBlock : kC128StateBlock, coff * ratio};
  s.group_name = ratio == 4 ? "C4 state" : "C128 state";
  return s;
}

// Rows of entries: one for `ratio` tokens, kept for good. Ranks that share them have pages of as
// many rows as one rank alone has, of blocks that are as many times as long: a page of ratio 128
// has two.
CacheSpec of_entries(CacheSpec s, int ratio, const ModelConfig& config) {
  s.tokens_per_row = ratio;
  s.retention = {GroupKind::kFull, kFullBlock * config.context_ranks, 0};
  s.group_name = "MLA";
  return s;
}

}  // namespace

std::span<const NamedCache> deepseek_v4_cache_names() { return kNames; }

std::vector<CacheSpec> deepseek_v4_caches(const ModelConfig& config) {
  std::vector<CacheSpec> specs;
  for (int i = 0; i < config.num_layers(); ++i) {
    CacheSpec swa = latent(make_spec(i, kSwaCache), config);
    swa.retention = {GroupKind::kSliding, kSwaBlock * config.context_ranks, config.window,
                     config.is_draft(i)};
    swa.group_name = "SWA";
    specs.push_back(swa);
    const int ratio = config.ratio(i);
    if (ratio == 0) continue;
    specs.push_back(of_entries(latent(make_spec(i, kMainCache), config), ratio, config));
    specs.push_back(state(make_spec(i, kMainStateCache), ratio, config.head_dim));
    if (ratio != 4) continue;
    CacheSpec index = of_entries(make_spec(i, kIndexCache), ratio, config);
    index.record = config.switches.index_format;
    index.head_dim = config.index_dim;
    specs.push_back(index);
    specs.push_back(state(make_spec(i, kIndexStateCache), ratio, config.index_dim));
  }
  return specs;
}

}  // namespace attnscope
