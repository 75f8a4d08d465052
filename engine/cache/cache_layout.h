// From a model to cache groups and storage: which caches every layer has, how they are grouped, and
// where each lies inside a block of the one packed slab.
//
// Rules (DeepSeek-V4 path): per layer, in registration order, the specs SWA latent, main
// compressed, compressor state, index keys, indexer state. All block-256 specs form the one full
// (MLA) group; windowed specs are bucketed by (block size, window) in order of first appearance.
// With t = count of a group's most frequent page size, d in [t of MLA, max t] minimises
// sum(roundup(t, d) - t) (ties: larger d); a bucket with t > d is split into ceil(t / d) groups by
// striding. Storage: inside a block the layers of a group lie densely from offset 0 (groups overlay
// each other, a block id belongs to one group at a time); block stride = largest group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "kernels/params/row_format.h"

namespace attnscope {

enum class CacheKind { kSwa, kMain, kMainState, kIndex, kIndexState };
inline constexpr int kCacheKinds = 5;
const char* cache_kind_name(CacheKind kind);  // "swa", "main", "state", "index", "index_state"

// One cache of one layer.
struct CacheSpec {
  int layer = 0;  // index among the layers that run
  CacheKind kind = CacheKind::kSwa;
  std::int32_t record = AS_RECORD_NONE;
  int width = 0;                // values per row
  int block_tokens = 0;         // 64, 256, 4, 8
  int window = 0;               // 0 = full
  int rows_per_block = 0;       // block_tokens / compress ratio of the rows
  std::int64_t page_bytes = 0;  // padded
  int group = -1;
  std::int64_t offset = 0;  // of this layer's page inside a block

  // Bytes of its rows and pages.
  as_row_layout rows() const { return as_row_layout_of(record, width, 1, rows_per_block); }
  std::int64_t row_bytes() const { return rows().row; }
};

struct CacheGroup {
  std::string name;  // "MLA", "SWA-a", "SWA-b", "C4 state", "C128 state"
  int block_tokens = 0;
  int window = 0;          // 0 = full
  std::int64_t bytes = 0;  // sum of its layers' pages
  std::vector<int> specs;  // indices into CacheLayout::specs
};

struct CacheLayout {
  std::vector<CacheSpec> specs;
  std::vector<CacheGroup> groups;  // full group first, then windowed ones
  std::int64_t block_stride = 0;   // bytes one block id costs
  int mla_group = -1;              // -1: the model has no compressed layer
  std::vector<int> swa_groups;     // indices of the SWA groups, in order

  // Spec of a layer's cache; nullptr when the layer has none of this kind.
  const CacheSpec* find(int layer, CacheKind kind) const;
  // Blocks a request of max_len tokens may need at most when token_budget tokens are computed a
  // step (the admission cap, summed over the groups).
  std::int64_t demand(std::int64_t max_len, std::int64_t token_budget) const;
};

CacheLayout build_cache_layout(const ModelConfig& config);

}  // namespace attnscope
