// One cache of one layer: what its rows are, how long they are kept and who has them. A family
// lists those of its models (engine/family/), engine/cache groups and places them.
//
//   CacheSpec k;                            // keys of a layer with 8 KV heads of 128, in bf16
//   k.name = "k";
//   k.id = {AS_CACHE_K, 0};
//   k.record = AS_RECORD_BF16;
//   k.num_kv_heads = 8;
//   k.head_dim = 128;
//   k.retention = {GroupKind::kFull, 16};
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/cache/group_spec.h"
#include "kernels/params/cache_access.h"
#include "kernels/params/op_ids.h"
#include "kernels/params/row_format.h"

namespace attnscope {

// A cache among those of a layer: its role, and which one of this role in the order in which the
// family lists them. Ops name theirs by it in the op table (cache_access.h).
struct CacheId {
  int role = AS_CACHE_ANY;  // as_cache_role
  int nth = 0;
  friend auto operator<=>(const CacheId&, const CacheId&) = default;
};

// What a rank of tensor parallelism has of it.
enum class CacheSharding {
  kReplicated,  // all of it, the same bytes on every rank
  kByHead,      // the rows of its own KV heads
};

struct CacheSpec {
  int layer = 0;        // index among the layers that run
  std::string name;     // in files and messages: "swa"
  std::string content;  // what rows are, for people: "latent rows"
  CacheId id;
  std::int32_t record = AS_RECORD_NONE;  // row format (row_format.h)
  int num_kv_heads = 1;
  int head_dim = 0;        // values of a head in a row
  int head_dim_v = 0;      // how many of them, the first ones, attention takes as V
  int tokens_per_row = 1;  // 1, 4, 128
  GroupSpec retention;     // tokens of a block, and which of them later tokens see
  std::string group_name;  // "MLA": groups of such caches are called so
  // Set by build_cache_layout(), of the graph: families say nothing of it (rank_split.h).
  CacheSharding sharding = CacheSharding::kReplicated;
  // Set by with_peers(): the other rank of the session whose rows these are; -1 = its own rank's.
  int peer = -1;
  // Set by group_caches().
  int width = 0;                // values of a row
  int rows_per_block = 0;       // rows of a page
  std::int64_t page_bytes = 0;  // padded
  int group = -1;
  std::int64_t offset = 0;  // of this layer's page inside a block

  int block_size() const { return retention.block_tokens; }
  // Bytes of its rows and pages.
  as_row_layout rows() const {
    return as_row_layout_of(record, width, num_kv_heads, rows_per_block);
  }
  std::int64_t row_bytes() const { return rows().row; }
  // Of such rows: pages, or rows without pages.
  as_cache cache(as_tensor data, as_addressing addressing = AS_PAGED) const {
    as_cache c{};
    c.data = data;
    c.data.reserved = num_kv_heads > 1 ? num_kv_heads : 0;
    c.record = record;
    c.addressing = addressing;
    c.rows_per_block = addressing == AS_PAGED ? rows_per_block : 0;
    c.width = width;
    return c;
  }
};

// The cache that a tap of an op is, by the op table; AS_CACHE_ANY where it is whatever is given.
CacheId tap_cache(std::int32_t op, std::size_t offset);
CacheId tap_cache(std::int32_t op, std::string_view tap);

// Which of a layer's ops puts rows into a cache, and as which of its taps; tap NULL: none does.
struct CacheWriter {
  as_op_id op = AS_OP_SCHEDULE;
  const char* tap = nullptr;
};
CacheWriter writer_of(CacheId id, std::span<const as_op_id> ops);

// The cache that a tensor of slots, or of a list of slots, of an op names rows of.
CacheId listed_cache(std::int32_t op, std::string_view tap);

}  // namespace attnscope
