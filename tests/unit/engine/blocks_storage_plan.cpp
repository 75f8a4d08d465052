// Storage and capacity against figures that the serving engine itself reported for V4-Flash: 40 GiB
// for caches, requests of up to 1,048,576 tokens, 8,192 tokens a step.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/cache/invariants.h"
#include "engine/cache/storage_plan.h"
#include "engine/family/models.h"

namespace attnscope {
namespace blocks_storage_plan_test {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

ModelConfig flash(const char* profile) {
  ModelConfig config = *preset("v4-flash");
  config.switches = *profile_switches(profile);
  return config;
}

struct Expected {
  const char* model_profile;  // vllm: FP8 index rows; deepseek: MXFP4
  CacheProfile profile;
  std::vector<std::int64_t> layers;
  std::int64_t bytes_per_block, num_blocks, request_blocks, request_bytes;
  double worker, scheduler;
};

TEST(BlocksStoragePlan, FlashFigures) {
  const std::vector<Expected> cases = {{"vllm",
                                        CacheProfile::kM,
                                        {62, 22, 21, 42, 20},
                                        1051776,
                                        40835,
                                        7450,
                                        7835731200,
                                        5.780,
                                        5.481},
                                       {"deepseek",
                                        CacheProfile::kM,
                                        {62, 22, 21, 21, 21, 20},
                                        963072,
                                        44596,
                                        9501,
                                        9150147072,
                                        5.131,
                                        4.694},
                                       {"vllm",
                                        CacheProfile::kA,
                                        {62, 22, 21, 42, 20},
                                        1002240,
                                        42853,
                                        7450,
                                        7835731200,
                                        5.752,
                                        5.752},
                                       {"deepseek",
                                        CacheProfile::kA,
                                        {62, 22, 21, 42, 20},
                                        917568,
                                        46808,
                                        7450,
                                        7174886400,
                                        6.283,
                                        6.283}};
  for (const Expected& e : cases) {
    SCOPED_TRACE(testing::Message() << e.model_profile << cache_profile_name(e.profile));
    const CacheSwitches s = switches_of(e.profile);
    const StoragePlan plan = plan_storage(build_cache_layout(flash(e.model_profile)), s.layout);
    std::vector<std::int64_t> layers;
    for (const PlannedGroup& g : plan.groups) layers.push_back(g.layers);
    EXPECT_EQ(layers, e.layers);
    EXPECT_EQ(plan.tuples, 22);
    EXPECT_EQ(plan.bytes_per_block, e.bytes_per_block);
    const Capacity c = capacity_of(plan, 40 * kGiB, 1048576, 8192, s.concurrency);
    EXPECT_EQ(c.num_blocks, e.num_blocks);
    EXPECT_EQ(c.request_total, e.request_blocks);
    EXPECT_EQ(c.request_bytes, e.request_bytes);
    EXPECT_NEAR(c.concurrency_worker, e.worker, 5e-4);
    EXPECT_NEAR(c.concurrency_scheduler, e.scheduler, 5e-4);
    EXPECT_EQ(c.alignment, 256);
    EXPECT_EQ(c.hash_block, 4);
  }
}

// The packed plan is what the session's own slab is laid out by.
TEST(BlocksStoragePlan, PackedPlanIsTheLayoutOfTheSlab) {
  for (const char* name : {"v4-flash", "v4-pro", "tiny"}) {
    const ModelConfig config = *preset(name);
    const CacheLayout layout = build_cache_layout(config);
    const StoragePlan plan = plan_storage(layout, StorageLayout::kPacked);
    EXPECT_EQ(plan.bytes_per_block, layout.block_stride);
    ASSERT_EQ(plan.groups.size(), layout.groups.size());
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      EXPECT_EQ(plan.groups[g].bytes, layout.groups[g].bytes);
    }
    EXPECT_FALSE(check_storage(layout));  // I21
  }
}

TEST(BlocksStoragePlan, StorageInvariantSeesAnOverlap) {
  CacheLayout layout = build_cache_layout(*preset("tiny"));
  ASSERT_GE(layout.groups[0].specs.size(), 2u);
  layout.specs[static_cast<std::size_t>(layout.groups[0].specs[1])].offset -= 576;
  ASSERT_TRUE(check_storage(layout));
  layout = build_cache_layout(*preset("tiny"));
  layout.block_stride -= 1;
  EXPECT_TRUE(check_storage(layout));
}

// Blocks that one request's windows may hold with so many tokens a step.
TEST(BlocksStoragePlan, CapsByTokenBudget) {
  const StoragePlan plan = plan_storage(build_cache_layout(flash("vllm")), StorageLayout::kPacked);
  const std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> cases = {
      {512, {11, 11, 131, 81}}, {2048, {35, 35, 515, 273}}, {8192, {131, 131, 2051, 1041}}};
  for (const auto& [budget, caps] : cases) {
    const Capacity c = capacity_of(plan, 40 * kGiB, 1048576, budget, ConcurrencyFigure::kByGroup);
    EXPECT_EQ(std::vector<std::int64_t>(c.request_blocks.begin() + 1, c.request_blocks.end()),
              caps);
    EXPECT_EQ(c.request_blocks[0], 4096);
  }
}

// One group of `layers` equal pages of one byte.
PlannedGroup group_of(GroupSpec spec, std::int64_t layers) {
  PlannedGroup group;
  group.spec = spec;
  group.pages = {{1, 1, layers}};
  group.layers = layers;
  group.bytes = layers;
  return group;
}

StoragePlan plan_of(std::vector<PlannedGroup> groups) {
  StoragePlan plan;
  for (const PlannedGroup& g : groups) {
    plan.tuples = std::max(plan.tuples, g.layers);
    plan.bytes_per_block = std::max(plan.bytes_per_block, g.bytes);
  }
  plan.checked_bytes = plan.bytes_per_block;
  plan.groups = std::move(groups);
  return plan;
}

TEST(BlocksStoragePlan, T74_get_max_concurrency_for_kv_cache_config) {
  const GroupSpec full{GroupKind::kFull, 16, 0, false};
  const GroupSpec window{GroupKind::kSliding, 16, 1024, false};
  const auto figure = [](std::vector<PlannedGroup> groups, std::int64_t blocks) {
    const StoragePlan plan = plan_of(std::move(groups));
    return capacity_of(plan, blocks * plan.bytes_per_block, 16384, 1024,
                       ConcurrencyFigure::kByBytes)
        .concurrency_worker;
  };
  EXPECT_DOUBLE_EQ(figure({group_of(full, 32)}, 1536), 1.5);
  EXPECT_DOUBLE_EQ(figure({group_of(window, 32)}, 387), 3);  // 129 each
  EXPECT_DOUBLE_EQ(figure({group_of(full, 16), group_of(window, 16)}, (1024 + 129) * 3), 3);
}

TEST(BlocksStoragePlan, T75_get_max_concurrency_packed_kv_cache_config) {
  const GroupSpec full{GroupKind::kFull, 16, 0, false};
  const GroupSpec window{GroupKind::kSliding, 16, 128, false};
  const StoragePlan plan = plan_of({group_of(full, 4), group_of(window, 2)});
  const auto figure = [&](ConcurrencyFigure kind) {
    return capacity_of(plan, 4 * 10000, 16384, 1024, kind).concurrency_worker;
  };
  EXPECT_DOUBLE_EQ(figure(ConcurrencyFigure::kByGroup), 10000.0 / 1097);
  EXPECT_DOUBLE_EQ(figure(ConcurrencyFigure::kByBytes), 10000.0 / 1061);
}

}  // namespace blocks_storage_plan_test
}  // namespace attnscope
