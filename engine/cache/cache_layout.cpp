#include "engine/cache/cache_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// Specs that are kept alike, before splitting.
struct Bucket {
  GroupSpec retention;
  std::vector<int> specs;
};

std::vector<Bucket> make_buckets(const std::vector<CacheSpec>& specs) {
  std::vector<Bucket> buckets;
  for (const bool full : {true, false}) {  // the full group comes first
    for (std::size_t s = 0; s < specs.size(); ++s) {
      const CacheSpec& spec = specs[s];
      if ((spec.retention.kind == GroupKind::kFull) != full) continue;
      auto it = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& b) {
        return b.retention.same_kind(spec.retention);
      });
      if (it == buckets.end()) {
        buckets.push_back({spec.retention, {}});
        it = std::prev(buckets.end());
      }
      it->specs.push_back(static_cast<int>(s));
    }
  }
  return buckets;
}

bool is_full(const Bucket& bucket) { return bucket.retention.kind == GroupKind::kFull; }

// How often a bucket's most frequent page size occurs.
std::int64_t tuples(const Bucket& bucket, const std::vector<CacheSpec>& specs) {
  std::map<std::int64_t, std::int64_t> counts;
  std::int64_t most = 0;
  for (int s : bucket.specs) {
    most = std::max(most, ++counts[specs[static_cast<std::size_t>(s)].page_bytes]);
  }
  return most;
}

// The d in [low, max t] with the least padding sum(roundup(t, d) - t); ties: the larger d.
std::int64_t group_width(const std::vector<std::int64_t>& t, std::int64_t low) {
  const std::int64_t high = *std::max_element(t.begin(), t.end());
  std::int64_t best = high;
  std::int64_t best_padding = -1;
  for (std::int64_t d = std::max<std::int64_t>(low, 1); d <= high; ++d) {
    std::int64_t padding = 0;
    for (std::int64_t n : t) padding += as_round_up(n, d) - n;
    if (best_padding < 0 || padding <= best_padding) {
      best = d;
      best_padding = padding;
    }
  }
  return best;
}

// The group's name with its part: "SWA-a" .. "SWA-z", then "SWA-27" and so on.
std::string part_name(std::string name, std::int64_t part) {
  name += '-';
  if (part < 26) {
    name += static_cast<char>('a' + part);
  } else {
    name += std::to_string(part + 1);
  }
  return name;
}

}  // namespace

const CacheSpec* CacheLayout::find(int layer, CacheId id, int peer) const {
  if (id.role == AS_CACHE_ANY) {
    const CacheSpec* entries = entries_of(*this, layer);
    return entries != nullptr ? entries : token_rows(*this, layer);
  }
  for (const CacheSpec& spec : specs) {
    if (spec.layer != owner(layer) || spec.id != id) continue;
    if (spec.peer == peer || spec.sharding == CacheSharding::kReplicated) return &spec;
  }
  return nullptr;
}

std::vector<int> CacheLayout::sharers(int layer) const {
  std::vector<int> layers;
  for (const auto& [reader, from] : shared) {
    if (from == layer) layers.push_back(reader);
  }
  return layers;
}

std::int64_t CacheLayout::demand(std::int64_t max_len, std::int64_t token_budget) const {
  std::int64_t total = 0;
  for (const CacheGroup& g : groups) {
    std::int64_t blocks = blocks_for(g, max_len);
    const std::int64_t cap = admission_cap(g, token_budget, max_len);
    if (cap >= 0) blocks = std::min(blocks, cap);
    total += blocks;
  }
  return total;
}

const CacheSpec* entries_of(const CacheLayout& layout, int layer) {
  for (const CacheSpec& spec : layout.specs) {
    if (spec.layer == layer && spec.id.role == AS_CACHE_KV && spec.tokens_per_row > 1) return &spec;
  }
  return nullptr;
}

int tokens_pooled(const CacheLayout& layout, int tokens_per_row) {
  for (const CacheSpec& spec : layout.specs) {
    if (spec.tokens_per_row != tokens_per_row || spec.id.role == AS_CACHE_STATE) continue;
    const CacheSpec* states = layout.find(spec.layer, {AS_CACHE_STATE, 0});
    if (states != nullptr) return states->retention.window;
  }
  return tokens_per_row;
}

namespace {

// A cache of a layer with a row for every token, of this role, or one of keys and values at once.
const CacheSpec* rows_of_role(const CacheLayout& layout, int layer, int role) {
  for (const CacheSpec& spec : layout.specs) {
    const bool attended = spec.id.role == AS_CACHE_KV || spec.id.role == role;
    if (spec.layer == layout.owner(layer) && attended && spec.tokens_per_row == 1) return &spec;
  }
  return nullptr;
}

}  // namespace

const CacheSpec* token_rows(const CacheLayout& layout, int layer) {
  return rows_of_role(layout, layer, AS_CACHE_K);
}

const CacheSpec* wide_rows(const CacheLayout& layout, int layer, int role, std::int64_t position) {
  for (const CacheSpec& spec : layout.specs) {
    const bool first = spec.retention.kind == GroupKind::kFirst && position >= 0 &&
                       position < spec.retention.window;
    if (first && spec.layer == layout.owner(layer) && spec.id.role == role) return &spec;
  }
  return nullptr;
}

bool has_window(const CacheLayout& layout, int layer) {
  const CacheSpec* rows = token_rows(layout, layer);
  return rows != nullptr && rows->retention.window > 0;
}

const CacheSpec* value_rows(const CacheLayout& layout, int layer) {
  return rows_of_role(layout, layer, AS_CACHE_V);
}

CacheLayout group_caches(std::vector<CacheSpec> specs) {
  CacheLayout layout;
  layout.specs = std::move(specs);
  for (CacheSpec& spec : layout.specs) {
    spec.width = spec.num_kv_heads * spec.head_dim;
    spec.rows_per_block = spec.retention.block_tokens / spec.tokens_per_row;
    spec.page_bytes = spec.rows().page;
  }
  const std::vector<Bucket> buckets = make_buckets(layout.specs);
  if (buckets.empty()) return layout;

  std::vector<std::int64_t> t;
  t.reserve(buckets.size());
  for (const Bucket& b : buckets) t.push_back(tuples(b, layout.specs));
  const std::int64_t d = group_width(t, is_full(buckets[0]) ? t[0] : 1);

  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    const std::int64_t parts = ceil_div(t[b], d);
    const std::size_t first = layout.groups.size();
    const CacheSpec& sample = layout.specs[static_cast<std::size_t>(bucket.specs[0])];
    for (std::int64_t p = 0; p < parts; ++p) {
      CacheGroup group{bucket.retention, {}, 0, {}};
      group.flagged = false;
      group.name = parts > 1 ? part_name(sample.group_name, p) : sample.group_name;
      if (is_full(bucket)) {
        layout.mla_group = static_cast<int>(layout.groups.size());
      } else if (bucket.retention.kind == GroupKind::kChunked) {
        layout.chunk_groups.push_back(static_cast<int>(layout.groups.size()));
      } else if (sample.id.role == AS_CACHE_KV) {
        layout.swa_groups.push_back(static_cast<int>(layout.groups.size()));
      }
      layout.groups.push_back(std::move(group));
    }
    // Layer k of the bucket goes to part k mod parts; a layer's specs stay together.
    int last_layer = -1;
    std::int64_t k = -1;
    for (int s : bucket.specs) {
      CacheSpec& spec = layout.specs[static_cast<std::size_t>(s)];
      if (spec.layer != last_layer) ++k;
      last_layer = spec.layer;
      spec.group = static_cast<int>(first) + static_cast<int>(k % parts);
      CacheGroup& group = layout.groups[static_cast<std::size_t>(spec.group)];
      spec.offset = group.bytes;
      group.bytes += spec.page_bytes;
      group.flagged = group.flagged || spec.retention.flagged;
      group.specs.push_back(s);
    }
  }
  for (const CacheGroup& g : layout.groups) {
    layout.block_stride = std::max(layout.block_stride, g.bytes);
  }
  return layout;
}

CacheLayout with_peers(CacheLayout layout, int ranks, int own) {
  const auto dealt = [](const CacheSpec& s) { return s.sharding == CacheSharding::kByHead; };
  if (ranks < 2 || std::ranges::none_of(layout.specs, dealt)) return layout;
  const std::int64_t bytes = layout.block_stride;
  const std::vector<CacheSpec> of_rank = layout.specs;
  int place = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == own) continue;
    ++place;
    for (CacheSpec spec : of_rank) {
      if (!dealt(spec)) continue;
      spec.peer = rank;
      spec.name = fmt::format("rank {} {}", rank, spec.name);
      spec.offset += place * bytes;
      CacheGroup& group = layout.groups[to_size(spec.group)];
      group.specs.push_back(static_cast<int>(layout.specs.size()));
      group.bytes = std::max(group.bytes, spec.offset + spec.page_bytes);
      layout.specs.push_back(std::move(spec));
    }
  }
  layout.block_stride = bytes * ranks;
  layout.ranks = ranks;
  return layout;
}

}  // namespace attnscope
