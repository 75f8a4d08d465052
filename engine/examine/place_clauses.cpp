// Where rows of caches lie.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/examine/call_parts.h"
#include "engine/examine/clause_makers.h"
#include "engine/model/numbers.h"
#include "kernels/params/row_access.h"

namespace attnscope {
namespace {

const as_tap_info* tap_at(const OpCase& call, std::size_t offset) {
  for (const as_tap_info& tap : call.op.taps) {
    if (tap.offset == offset) return &tap;
  }
  return nullptr;
}

StoredCache* cache_of(OpCase& call, const as_cache_access& access) {
  const as_tap_info* tap = tap_at(call, access.cache);
  const auto it = tap == nullptr ? call.caches.end() : call.caches.find(tap->name);
  return it == call.caches.end() || it->second.blocks == 0 ? nullptr : &it->second;
}

StoredTensor* places_of(OpCase& call, const as_cache_access& access) {
  const as_tap_info* tap = tap_at(call, access.rows);
  return tap == nullptr ? nullptr : tensor_of(call, *tap);
}

// Moves what names rows of a cache by so many blocks. Block 0 is the null block and stays.
void move_places(StoredTensor& places, const as_cache_access& access, std::int64_t rows_per_block,
                 std::int64_t blocks) {
  if (RowAccess::by_table(access)) {
    for (std::int32_t& id : elements<std::int32_t>(places)) {
      if (id > 0) id += static_cast<std::int32_t>(blocks);
    }
  } else if (places.dtype == AS_I64) {
    for (std::int64_t& slot : elements<std::int64_t>(places)) {
      if (slot >= rows_per_block) slot += blocks * rows_per_block;
    }
  } else {
    for (std::int32_t& slot : elements<std::int32_t>(places)) {
      if (slot >= rows_per_block) slot += static_cast<std::int32_t>(blocks * rows_per_block);
    }
  }
}

// Accesses whose caches share a tensor of places are moved together.
using Together = std::vector<const as_cache_access*>;

std::vector<Together> accesses_together(OpCase& call) {
  std::vector<Together> groups;
  for (const as_cache_access& access : RowAccess::of(call.op.id)) {
    if (cache_of(call, access) == nullptr || places_of(call, access) == nullptr) continue;
    const auto shares = [&](const as_cache_access* other) {
      return other->rows == access.rows || other->cache == access.cache;
    };
    Together joined = {&access};
    std::erase_if(groups, [&](Together& group) {
      if (std::ranges::none_of(group, shares)) return false;
      joined.insert(joined.end(), group.begin(), group.end());
      return true;
    });
    groups.push_back(std::move(joined));
  }
  return groups;
}

bool move_blocks(OpCase& call, std::int64_t bytes) {
  bool moved = false;
  for (const Together& group : accesses_together(call)) {
    std::int64_t least = 0;
    for (const as_cache_access* access : group) {
      const std::int64_t stride = cache_of(call, *access)->page_stride;
      least = least == 0 ? stride : std::min(least, stride);
    }
    if (least == 0) continue;
    const std::int64_t blocks = bytes / least + 1;
    std::set<const void*> done;
    for (const as_cache_access* access : group) {
      StoredCache& cache = *cache_of(call, *access);
      const std::int64_t rows = cache.rows_per_block;
      StoredTensor& places = *places_of(call, *access);
      // Slots of 32 bits.
      if (!RowAccess::by_table(*access) && places.dtype == AS_I32 &&
          (cache.blocks + blocks) * rows > std::int64_t{INT32_MAX}) {
        return false;
      }
      if (done.insert(&places).second) move_places(places, *access, rows, blocks);
      if (!done.insert(&cache).second) continue;
      for (std::int64_t& slot : cache.slots) {
        if (slot >= rows) slot += blocks * rows;
      }
      cache.blocks += blocks;
      moved = true;
    }
  }
  return moved;
}

}  // namespace

std::vector<Variation> unread_pages(const OpCase& ordinary) {
  std::vector<Variation> out;
  for (const bool null_block : {true, false}) {
    OpCase call = ordinary;
    bool changed = false;
    std::set<const void*> done;
    for (const as_cache_access& access : RowAccess::of(call.op.id)) {
      if (!RowAccess::by_table(access)) continue;
      StoredTensor* table = places_of(call, access);
      if (table == nullptr || cache_of(call, access) == nullptr || !done.insert(table).second) {
        continue;
      }
      // Blocks with a row that some access through this table reads, and one behind them all.
      std::set<std::int64_t> read;
      std::int64_t fresh = 0;
      for (const as_cache_access& other : RowAccess::of(call.op.id)) {
        StoredCache* cache = other.rows == access.rows ? cache_of(call, other) : nullptr;
        if (cache == nullptr) continue;
        for (const std::int64_t slot : cache->slots) read.insert(slot / cache->rows_per_block);
        fresh = std::max(fresh, cache->blocks);
      }
      for (const as_cache_access& other : RowAccess::of(call.op.id)) {
        StoredCache* cache = other.rows == access.rows ? cache_of(call, other) : nullptr;
        if (cache != nullptr && !null_block) cache->blocks = fresh + 1;
      }
      for (std::int32_t& id : elements<std::int32_t>(*table)) {
        if (read.contains(id)) continue;
        id = null_block ? 0 : static_cast<std::int32_t>(fresh);
        changed = true;
      }
    }
    if (!changed) continue;
    out.push_back(
        {null_block ? "null blocks where no row is read" : "blocks of NaN there", std::move(call)});
  }
  return out;
}

std::vector<Variation> high_blocks(const OpCase& ordinary) {
  std::vector<Variation> out;
  for (const int bits : {31, 32}) {
    OpCase call = ordinary;
    if (!move_blocks(call, std::int64_t{1} << bits)) continue;
    out.push_back({fmt::format("rows more than {} GiB behind the first block", bits == 31 ? 2 : 4),
                   std::move(call)});
  }
  return out;
}

}  // namespace attnscope
