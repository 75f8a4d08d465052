#include "engine/cache/cache_layout.h"

#include <algorithm>
#include <map>

#include "engine/model/numbers.h"
#include "kernels/layout/records.h"

namespace attnscope {
namespace {

constexpr int kFullBlock = 256;   // tokens of a compressed block
constexpr int kSwaBlock = 64;     // as many rows as a C4A page of kFullBlock tokens
constexpr int kC4StateBlock = 4;  // state pages stay just below a latent page
constexpr int kC128StateBlock = 8;

CacheSpec make_spec(int layer, CacheKind kind, std::int32_t record, int width, int block_tokens,
                    int window, int ratio) {
  CacheSpec s;
  s.layer = layer;
  s.kind = kind;
  s.record = record;
  s.width = width;
  s.block_tokens = block_tokens;
  s.window = window;
  s.rows_per_block = block_tokens / ratio;
  s.page_bytes = s.rows().page;
  return s;
}

// Registration order per layer; a state row is [kv | score], both coff * d wide.
std::vector<CacheSpec> all_specs(const ModelConfig& config) {
  std::vector<CacheSpec> specs;
  for (int i = 0; i < config.num_layers(); ++i) {
    const LayerType type = config.type(i);
    specs.push_back(
        make_spec(i, CacheKind::kSwa, AS_RECORD_LATENT, AS_HEAD_DIM, kSwaBlock, config.window, 1));
    if (type == LayerType::kSwa) continue;
    const int ratio = config.ratio(i);
    const int coff = type == LayerType::kC4A ? 2 : 1;
    const int state_block = type == LayerType::kC4A ? kC4StateBlock : kC128StateBlock;
    specs.push_back(
        make_spec(i, CacheKind::kMain, AS_RECORD_LATENT, AS_HEAD_DIM, kFullBlock, 0, ratio));
    specs.push_back(make_spec(i, CacheKind::kMainState, AS_RECORD_STATE, 2 * coff * AS_HEAD_DIM,
                              state_block, coff * ratio, 1));
    if (type != LayerType::kC4A) continue;
    specs.push_back(make_spec(i, CacheKind::kIndex, config.switches.index_format, AS_INDEX_DIM,
                              kFullBlock, 0, ratio));
    specs.push_back(make_spec(i, CacheKind::kIndexState, AS_RECORD_STATE, 2 * coff * AS_INDEX_DIM,
                              state_block, coff * ratio, 1));
  }
  return specs;
}

// Specs that share block size and window, before splitting.
struct Bucket {
  int block_tokens = 0;
  int window = 0;
  std::vector<int> specs;
};

std::vector<Bucket> make_buckets(const std::vector<CacheSpec>& specs) {
  std::vector<Bucket> buckets;
  for (const bool full : {true, false}) {  // the full group comes first
    for (std::size_t s = 0; s < specs.size(); ++s) {
      const CacheSpec& spec = specs[s];
      if ((spec.window == 0) != full) continue;
      auto it = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& b) {
        return b.block_tokens == spec.block_tokens && b.window == spec.window;
      });
      if (it == buckets.end()) {
        buckets.push_back({spec.block_tokens, spec.window, {}});
        it = std::prev(buckets.end());
      }
      it->specs.push_back(static_cast<int>(s));
    }
  }
  return buckets;
}

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

std::string base_name(const CacheSpec& spec) {
  switch (spec.kind) {
    case CacheKind::kMain:
    case CacheKind::kIndex:
      return "MLA";
    case CacheKind::kSwa:
      return "SWA";
    case CacheKind::kMainState:
    case CacheKind::kIndexState:
      break;
  }
  return spec.block_tokens == kC4StateBlock ? "C4 state" : "C128 state";
}

}  // namespace

const char* cache_kind_name(CacheKind kind) {
  switch (kind) {
    case CacheKind::kSwa:
      return "swa";
    case CacheKind::kMain:
      return "main";
    case CacheKind::kMainState:
      return "state";
    case CacheKind::kIndex:
      return "index";
    case CacheKind::kIndexState:
      return "index_state";
  }
  return "?";
}

const CacheSpec* CacheLayout::find(int layer, CacheKind kind) const {
  for (const CacheSpec& spec : specs) {
    if (spec.layer == layer && spec.kind == kind) return &spec;
  }
  return nullptr;
}

std::int64_t CacheLayout::demand(std::int64_t max_len, std::int64_t token_budget) const {
  std::int64_t total = 0;
  for (const CacheGroup& g : groups) {
    std::int64_t blocks = ceil_div(max_len, g.block_tokens);
    if (g.window > 0) {
      // The window may start in the middle of a block: one more.
      const std::int64_t held = std::min(g.window - 1 + token_budget, max_len);
      blocks = std::min(blocks, ceil_div(held, g.block_tokens) + 1);
    }
    total += blocks;
  }
  return total;
}

CacheLayout build_cache_layout(const ModelConfig& config) {
  CacheLayout layout;
  layout.specs = all_specs(config);
  const std::vector<Bucket> buckets = make_buckets(layout.specs);
  if (buckets.empty()) return layout;

  std::vector<std::int64_t> t;
  t.reserve(buckets.size());
  for (const Bucket& b : buckets) t.push_back(tuples(b, layout.specs));
  const std::int64_t d = group_width(t, buckets[0].window == 0 ? t[0] : 1);

  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    const std::int64_t parts = ceil_div(t[b], d);
    const std::size_t first = layout.groups.size();
    const CacheSpec& sample = layout.specs[static_cast<std::size_t>(bucket.specs[0])];
    for (std::int64_t p = 0; p < parts; ++p) {
      CacheGroup group;
      group.name = parts > 1 ? part_name(base_name(sample), p) : base_name(sample);
      group.block_tokens = bucket.block_tokens;
      group.window = bucket.window;
      if (sample.kind == CacheKind::kSwa) {
        layout.swa_groups.push_back(static_cast<int>(layout.groups.size()));
      }
      if (bucket.window == 0) layout.mla_group = static_cast<int>(layout.groups.size());
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
      group.specs.push_back(s);
    }
  }
  for (const CacheGroup& g : layout.groups) {
    layout.block_stride = std::max(layout.block_stride, g.bytes);
  }
  return layout;
}

}  // namespace attnscope
