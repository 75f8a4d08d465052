// Groups, storage and admission caps against hand-computed tables of the published models.
#include "engine/cache/cache_layout.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

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
    EXPECT_EQ(l.find(0, CacheKind::kSwa)->group, 1);
    EXPECT_EQ(l.find(1, CacheKind::kSwa)->group, 2);
    EXPECT_EQ(l.find(2, CacheKind::kSwa)->group, 1);
    EXPECT_EQ(l.find(3, CacheKind::kSwa)->group, 2);
    EXPECT_EQ(l.find(2, CacheKind::kSwa)->offset, 37440);
    EXPECT_EQ(l.find(3, CacheKind::kMain)->offset, 37440 + 8640 + 1728);
  }
}

TEST(CacheLayout, SpecsCarryPageAndRowFacts) {
  const CacheLayout l = build_cache_layout(model("tiny"));
  const CacheSpec* swa = l.find(0, CacheKind::kSwa);
  ASSERT_NE(swa, nullptr);
  EXPECT_EQ(swa->rows_per_block, 64);
  EXPECT_EQ(swa->page_bytes, 37440);
  EXPECT_EQ(swa->record, AS_RECORD_LATENT);
  EXPECT_EQ(l.find(0, CacheKind::kMain), nullptr);  // window only
  const CacheSpec* c4 = l.find(1, CacheKind::kMain);
  EXPECT_EQ(c4->rows_per_block, 64);
  EXPECT_EQ(c4->page_bytes, 37440);
  const CacheSpec* c128 = l.find(2, CacheKind::kMain);
  EXPECT_EQ(c128->rows_per_block, 2);
  EXPECT_EQ(c128->page_bytes, 1728);
  const CacheSpec* index = l.find(1, CacheKind::kIndex);
  EXPECT_EQ(index->page_bytes, 8640);
  EXPECT_EQ(index->width, 128);
  const CacheSpec* state = l.find(1, CacheKind::kMainState);
  EXPECT_EQ(state->width, 2048);
  EXPECT_EQ(state->page_bytes, 32832);
  EXPECT_EQ(state->window, 8);
  EXPECT_EQ(l.find(1, CacheKind::kIndexState)->width, 512);
  EXPECT_EQ(l.find(1, CacheKind::kIndexState)->page_bytes, 8640);
  EXPECT_EQ(l.find(2, CacheKind::kMainState)->width, 1024);
  EXPECT_EQ(l.find(2, CacheKind::kMainState)->window, 128);
  EXPECT_EQ(l.find(2, CacheKind::kIndex), nullptr);
  const CacheLayout mxfp4 = build_cache_layout(model("tiny", {}, "deepseek"));
  EXPECT_EQ(mxfp4.find(1, CacheKind::kIndex)->page_bytes, 4608);
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
        EXPECT_EQ(spec.block_tokens, l.groups[g].block_tokens);
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

TEST(CacheLayout, KindNamesDiffer) {
  std::set<std::string> seen;
  for (int k = 0; k < kCacheKinds; ++k) seen.insert(cache_kind_name(static_cast<CacheKind>(k)));
  EXPECT_EQ(seen, (std::set<std::string>{"swa", "main", "state", "index", "index_state"}));
}

}  // namespace cache_layout_test
}  // namespace attnscope
