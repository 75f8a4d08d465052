// Groups, storage and admission caps against hand-computed tables of the published models.
#include "engine/cache/cache_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "engine/family/deepseek_v4/caches.h"
#include "engine/family/family.h"
#include "engine/family/models.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace cache_layout_test {

ModelConfig model(const char* name, const std::vector<int>& layers = {},
                  const char* profile = "vllm") {
  ModelConfig config = *preset(name, layers);
  config.switches = *profile_switches(profile);
  return config;
}

std::map<std::string, std::int64_t> bytes_by_group(const CacheLayout& layout) {
  std::map<std::string, std::int64_t> bytes;
  for (const CacheGroup& g : layout.groups) bytes[g.name] = g.bytes;
  return bytes;
}

std::vector<std::string> names(const CacheLayout& layout) {
  std::vector<std::string> out;
  for (const CacheGroup& g : layout.groups) out.push_back(g.name);
  return out;
}

using Bytes = std::map<std::string, std::int64_t>;

TEST(CacheLayout, FlashGroupsAndBytes) {
  const CacheLayout l = build_cache_layout(model("v4-flash"));
  EXPECT_EQ(l.specs.size(), 167u);
  EXPECT_EQ(names(l),
            (std::vector<std::string>{"MLA", "SWA-a", "SWA-b", "C4 state", "C128 state"}));
  EXPECT_EQ(bytes_by_group(l), (Bytes{{"MLA", 1002240},
                                      {"SWA-a", 823680},
                                      {"SWA-b", 786240},
                                      {"C4 state", 870912},
                                      {"C128 state", 656640}}));
  EXPECT_EQ(l.block_stride, 1002240);
  const std::vector<std::size_t> layers = {62, 22, 21, 42, 20};
  const std::vector<int> blocks = {256, 64, 64, 4, 8};
  const std::vector<int> windows = {0, 128, 128, 8, 128};
  for (std::size_t g = 0; g < 5; ++g) {
    EXPECT_EQ(l.groups[g].specs.size(), layers[g]);
    EXPECT_EQ(l.groups[g].block_tokens, blocks[g]);
    EXPECT_EQ(l.groups[g].window, windows[g]);
  }
  EXPECT_EQ(l.mla_group, 0);
  EXPECT_EQ(l.swa_groups, (std::vector<int>{1, 2}));
}

TEST(CacheLayout, Mxfp4IndexRowsShrinkOnlyTheFullGroup) {
  const CacheLayout flash = build_cache_layout(model("v4-flash", {}, "deepseek"));
  EXPECT_EQ(flash.block_stride, 917568);
  EXPECT_EQ(flash.groups.size(), 5u);
  EXPECT_EQ(bytes_by_group(flash)["C4 state"], 870912);
  const CacheLayout pro = build_cache_layout(model("v4-pro", {}, "deepseek"));
  EXPECT_EQ(pro.block_stride, 1315008);
}

TEST(CacheLayout, ProGroupsAndBytes) {
  const CacheLayout l = build_cache_layout(model("v4-pro"));
  EXPECT_EQ(bytes_by_group(l), (Bytes{{"MLA", 1435968},
                                      {"SWA-a", 1160640},
                                      {"SWA-b", 1123200},
                                      {"C4 state", 1244160},
                                      {"C128 state", 1017792}}));
  EXPECT_EQ(l.block_stride, 1435968);
  // Layers 0 and 1 are C128A, so that their state bucket appears before the C4 one.
  EXPECT_EQ(names(l),
            (std::vector<std::string>{"MLA", "SWA-a", "SWA-b", "C128 state", "C4 state"}));
}

TEST(CacheLayout, SubsetAndTinyKeepTheFiveGroups) {
  for (const ModelConfig& config : {model("v4-flash", {0, 2, 3, 4}), model("tiny")}) {
    const CacheLayout l = build_cache_layout(config);
    EXPECT_EQ(names(l),
              (std::vector<std::string>{"MLA", "SWA-a", "SWA-b", "C4 state", "C128 state"}));
    // Two C4A layers and one C128A layer: 2 * (37440 + 8640) + 1728.
    EXPECT_EQ(l.block_stride, 93888);
    EXPECT_EQ(bytes_by_group(l)["C4 state"], 2 * (32832 + 8640));
    EXPECT_EQ(bytes_by_group(l)["C128 state"], 32832);
    // Layers alternate between the SWA groups.
    EXPECT_EQ(l.find(0, kSwaCache)->group, 1);
    EXPECT_EQ(l.find(1, kSwaCache)->group, 2);
    EXPECT_EQ(l.find(2, kSwaCache)->group, 1);
    EXPECT_EQ(l.find(3, kSwaCache)->group, 2);
    EXPECT_EQ(l.find(2, kSwaCache)->offset, 37440);
    EXPECT_EQ(l.find(3, kMainCache)->offset, 37440 + 8640 + 1728);
  }
}

TEST(CacheLayout, SpecsCarryPageAndRowFacts) {
  const CacheLayout l = build_cache_layout(model("tiny"));
  const CacheSpec* swa = l.find(0, kSwaCache);
  ASSERT_NE(swa, nullptr);
  EXPECT_EQ(swa->rows_per_block, 64);
  EXPECT_EQ(swa->page_bytes, 37440);
  EXPECT_EQ(swa->record, AS_RECORD_LATENT);
  EXPECT_EQ(l.find(0, kMainCache), nullptr);  // window only
  const CacheSpec* c4 = l.find(1, kMainCache);
  EXPECT_EQ(c4->rows_per_block, 64);
  EXPECT_EQ(c4->page_bytes, 37440);
  const CacheSpec* c128 = l.find(2, kMainCache);
  EXPECT_EQ(c128->rows_per_block, 2);
  EXPECT_EQ(c128->page_bytes, 1728);
  const CacheSpec* index = l.find(1, kIndexCache);
  EXPECT_EQ(index->page_bytes, 8640);
  EXPECT_EQ(index->width, 128);
  const CacheSpec* state = l.find(1, kMainStateCache);
  EXPECT_EQ(state->width, 2048);
  EXPECT_EQ(state->page_bytes, 32832);
  EXPECT_EQ(state->retention.window, 8);
  EXPECT_EQ(l.find(1, kIndexStateCache)->width, 512);
  EXPECT_EQ(l.find(1, kIndexStateCache)->page_bytes, 8640);
  EXPECT_EQ(l.find(2, kMainStateCache)->width, 1024);
  EXPECT_EQ(l.find(2, kMainStateCache)->retention.window, 128);
  EXPECT_EQ(l.find(2, kIndexCache), nullptr);
  const CacheLayout mxfp4 = build_cache_layout(model("tiny", {}, "deepseek"));
  EXPECT_EQ(mxfp4.find(1, kIndexCache)->page_bytes, 4608);
}

// Inside a group the pages are dense, disjoint and end within the stride.
TEST(CacheLayout, PagesTileTheirGroup) {
  for (const char* name : {"tiny", "v4-flash", "v4-pro"}) {
    const CacheLayout l = build_cache_layout(model(name));
    std::size_t placed = 0;
    for (std::size_t g = 0; g < l.groups.size(); ++g) {
      std::int64_t offset = 0;
      for (int s : l.groups[g].specs) {
        const CacheSpec& spec = l.specs[static_cast<std::size_t>(s)];
        EXPECT_EQ(spec.offset, offset);
        EXPECT_EQ(spec.group, static_cast<int>(g));
        EXPECT_EQ(spec.block_size(), l.groups[g].block_tokens);
        EXPECT_EQ(spec.page_bytes % 576, 0);
        offset += spec.page_bytes;
        ++placed;
      }
      EXPECT_EQ(offset, l.groups[g].bytes);
      EXPECT_LE(offset, l.block_stride);
    }
    EXPECT_EQ(placed, l.specs.size());
  }
}

TEST(CacheLayout, ModelsWithoutSomeType) {
  const CacheLayout swa_only = build_cache_layout(model("v4-flash", {0, 1}));
  EXPECT_EQ(names(swa_only), (std::vector<std::string>{"SWA"}));
  EXPECT_EQ(swa_only.mla_group, -1);
  EXPECT_EQ(swa_only.swa_groups, (std::vector<int>{0}));
  EXPECT_EQ(swa_only.block_stride, 2 * 37440);

  const CacheLayout c128_only = build_cache_layout(model("v4-flash", {3}));
  EXPECT_EQ(names(c128_only), (std::vector<std::string>{"MLA", "SWA", "C128 state"}));
  EXPECT_EQ(c128_only.block_stride, 37440);

  const CacheLayout c4_only = build_cache_layout(model("v4-flash", {2, 4}));
  EXPECT_EQ(names(c4_only), (std::vector<std::string>{"MLA", "SWA", "C4 state"}));

  // One compressed layer among window-only ones: every SWA layer becomes a group of its own,
  // because groups are as wide as the full group.
  const CacheLayout split = build_cache_layout(model("v4-flash", {0, 1, 2}));
  EXPECT_EQ(names(split), (std::vector<std::string>{"MLA", "SWA-a", "SWA-b", "SWA-c", "C4 state"}));
  EXPECT_EQ(split.swa_groups, (std::vector<int>{1, 2, 3}));
}

TEST(CacheLayout, AdmissionCaps) {
  const CacheLayout l = build_cache_layout(model("v4-flash"));
  constexpr std::int64_t kLong = 1048576;
  const std::int64_t full = 4096;  // 1048576 / 256
  EXPECT_EQ(l.demand(kLong, 512) - full, 234);
  EXPECT_EQ(l.demand(kLong, 2048) - full, 858);
  EXPECT_EQ(l.demand(kLong, 8192) - full, 3354);
  EXPECT_EQ(l.demand(kLong, 8192), 7450);
  EXPECT_EQ(l.demand(kLong, 32768) - full, 13338);
  // One token a step: 128 positions in 2 + 1 blocks, 8 in 2 + 1, 128 in 16 + 1.
  EXPECT_EQ(l.demand(kLong, 1) - full, 3 + 3 + 3 + 17);
  // A short request never needs more than its own tokens: 1 + 1 + 1 + 3 + 2.
  EXPECT_EQ(l.demand(10, 512), 8);
  EXPECT_EQ(l.demand(1, 512), 5);
  // 600 tokens, 512 a step: 3; 10 of min(10, 11) twice; 131 of 150; 75 of min(75, 81).
  EXPECT_EQ(l.demand(600, 512), 3 + 10 + 10 + 131 + 75);
}

TEST(CacheLayout, CachesAreToldApartByNameAndRole) {
  std::set<std::string> seen;
  std::set<CacheId> ids;
  for (const CacheSpec& spec : build_cache_layout(model("tiny")).specs) {
    seen.insert(spec.name);
    ids.insert(spec.id);
    EXPECT_EQ(spec.tokens_per_row * spec.rows_per_block, spec.block_size());
    EXPECT_EQ(spec.head_dim_v, spec.id.role == AS_CACHE_KV ? 512 : 0);
    EXPECT_EQ(spec.sharding, CacheSharding::kReplicated);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"swa", "main", "state", "index", "index_state"}));
  EXPECT_EQ(ids, (std::set<CacheId>{kSwaCache, kMainCache, kMainStateCache, kIndexCache,
                                    kIndexStateCache}));
  EXPECT_EQ(deepseek_v4_cache_names().size(), ids.size());
}

// Keys and values of a model of 8 KV heads, in blocks of 16, every second layer with a window.
CacheLayout dense(int layers) {
  std::vector<CacheSpec> specs;
  for (int i = 0; i < layers; ++i) {
    for (const bool v : {false, true}) {
      CacheSpec s;
      s.layer = i;
      s.name = v ? "v" : "k";
      s.id = {v ? AS_CACHE_V : AS_CACHE_K, 0};
      s.record = AS_RECORD_BF16 | AS_RECORD_HND;
      s.num_kv_heads = 8;
      s.head_dim = 128;
      s.head_dim_v = v ? 128 : 0;
      s.retention = i % 2 == 0 ? GroupSpec{GroupKind::kFull, 16, 0, false}
                               : GroupSpec{GroupKind::kSliding, 16, 64, false};
      s.group_name = i % 2 == 0 ? "full" : "window";
      s.sharding = CacheSharding::kByHead;
      specs.push_back(s);
    }
  }
  return group_caches(std::move(specs));
}

TEST(CacheLayout, GroupsCachesOfAnyFamily) {
  const CacheLayout l = dense(4);
  ASSERT_EQ(l.groups.size(), 2u);
  EXPECT_EQ(l.groups[0].name, "full");
  EXPECT_EQ(l.groups[1].name, "window");
  EXPECT_EQ(l.groups[1].window, 64);
  EXPECT_EQ(l.specs[0].page_bytes, 16 * 8 * 128 * 2);
  EXPECT_EQ(l.block_stride, 4 * 32768);
  EXPECT_EQ(l.find(3, {AS_CACHE_V, 0})->offset, 3 * 32768);
  EXPECT_EQ(l.find(3, {AS_CACHE_KV, 0}), nullptr);
  EXPECT_EQ(l.mla_group, 0);
  EXPECT_TRUE(l.swa_groups.empty()) << "windows of latent rows alone";
  std::uint8_t memory = 0;
  const as_cache k = l.specs[0].cache(make_tensor(&memory, {1, l.specs[0].page_bytes}));
  EXPECT_EQ(as_cache_heads(&k), 8);
  EXPECT_EQ(as_cache_row_bytes(&k), 2048);
  EXPECT_EQ(k.width, 1024);
}

TEST(CacheLayout, EntriesOverlapWhereStatesOfMoreTokensAreKept) {
  const CacheLayout layout = build_cache_layout(model("tiny"));
  EXPECT_EQ(entries_of(layout, 0), nullptr);
  EXPECT_EQ(entries_of(layout, 1), layout.find(1, kMainCache));
  EXPECT_EQ(entries_of(layout, 2)->tokens_per_row, 128);
  EXPECT_EQ(tokens_pooled(layout, 4), 8);
  EXPECT_EQ(tokens_pooled(layout, 128), 128);
  EXPECT_EQ(tokens_pooled(layout, 16), 16) << "nobody keeps states for such";
}

TEST(CacheLayout, RanksShareWhatIsTheSameOnAll) {
  const CacheLayout own = build_cache_layout(model("tiny")), l = with_peers(own, 4, 2);
  EXPECT_EQ(l.specs.size(), own.specs.size());
  EXPECT_EQ(l.block_stride, own.block_stride);
  EXPECT_EQ(l.own_bytes(), own.block_stride);
  EXPECT_EQ(l.find(1, kMainCache, 3), l.find(1, kMainCache));
}

// Each of the two groups has two layers of two pages.
TEST(CacheLayout, PeersHaveWhatIsDealtOutInTheSameBlocks) {
  const CacheLayout own = dense(4), l = with_peers(own, 3, 1);
  ASSERT_EQ(l.specs.size(), 3 * own.specs.size());
  EXPECT_EQ(l.block_stride, 3 * own.block_stride);
  EXPECT_EQ(l.own_bytes(), own.block_stride);
  for (std::size_t i = 0; i < own.specs.size(); ++i) {
    EXPECT_EQ(l.specs[i].offset, own.specs[i].offset) << "own pages stay where they are";
    EXPECT_EQ(l.specs[i].peer, -1);
  }
  const CacheId values = {AS_CACHE_V, 0};
  const CacheSpec &mine = *l.find(2, values), &first = *l.find(2, values, 0),
                  &last = *l.find(2, values, 2);
  EXPECT_EQ(mine.offset, own.find(2, values)->offset);
  EXPECT_EQ(first.name, "rank 0 v");
  EXPECT_EQ(first.offset, mine.offset + own.block_stride);
  EXPECT_EQ(last.offset, mine.offset + 2 * own.block_stride);
  EXPECT_EQ(first.group, mine.group);
  EXPECT_EQ(l.find(2, values, 1), nullptr) << "the own rank is no peer";
  for (const CacheGroup& group : l.groups) {
    EXPECT_EQ(group.specs.size(), 3 * own.groups[0].specs.size());
    EXPECT_EQ(group.bytes, 2 * own.block_stride + own.groups[0].bytes);
  }
  EXPECT_EQ(with_peers(own, 1, 0).specs.size(), own.specs.size());
}

TEST(CacheLayout, OpsNameTheirCachesInTheOpTable) {
  EXPECT_EQ(tap_cache(AS_OP_Q_ROPE_KV_INSERT, "cache"), kSwaCache);
  EXPECT_EQ(tap_cache(AS_OP_SPARSE_ATTENTION, "cache"), kSwaCache);
  EXPECT_EQ(tap_cache(AS_OP_SPARSE_ATTENTION, "extra_cache"), kMainCache);
  EXPECT_EQ(tap_cache(AS_OP_COMPRESSOR_STATE, "state"), kMainStateCache);
  EXPECT_EQ(tap_cache(AS_OP_COMPRESS_INSERT, "state"), kMainStateCache);
  EXPECT_EQ(tap_cache(AS_OP_COMPRESS_INSERT, "cache"), kMainCache);
  EXPECT_EQ(tap_cache(AS_OP_INDEXER_COMPRESSOR_STATE, "state"), kIndexStateCache);
  EXPECT_EQ(tap_cache(AS_OP_INDEXER_COMPRESS_INSERT, "state"), kIndexStateCache);
  EXPECT_EQ(tap_cache(AS_OP_INDEXER_COMPRESS_INSERT, "cache"), kIndexCache);
  EXPECT_EQ(tap_cache(AS_OP_INDEXER_LOGITS, "cache"), kIndexCache);
  EXPECT_EQ(tap_cache(AS_OP_GATHER_ROWS, "cache"), CacheId{});
  EXPECT_EQ(tap_cache(AS_OP_SPARSE_ATTENTION, "q"), CacheId{});
  EXPECT_EQ(listed_cache(AS_OP_SPARSE_ATTENTION, "extra_indices"), kMainCache);
  EXPECT_EQ(listed_cache(AS_OP_COMPRESS_INSERT, "slots"), kMainCache);
  EXPECT_EQ(listed_cache(AS_OP_COMPRESS_INSERT, "table"), kMainStateCache);
  // Every cache of a layer has its writer among the layer's ops, and only one.
  const ModelConfig config = model("tiny");
  const auto graph = model_graph(config);
  for (const CacheSpec& spec : build_cache_layout(config).specs) {
    const std::span<const as_op_id> ops = graph->layer(spec.layer).ops();
    const CacheWriter writer = writer_of(spec.id, ops);
    ASSERT_NE(writer.tap, nullptr) << spec.name;
    EXPECT_EQ(tap_cache(writer.op, writer.tap), spec.id);
    const auto at = std::ranges::find(ops, writer.op);
    EXPECT_EQ(writer_of(spec.id, ops.subspan(static_cast<std::size_t>(at - ops.begin()) + 1)).tap,
              nullptr);
  }
  EXPECT_EQ(writer_of(kMainCache, graph->layer(0).ops()).tap, nullptr);
}

}  // namespace cache_layout_test
}  // namespace attnscope
