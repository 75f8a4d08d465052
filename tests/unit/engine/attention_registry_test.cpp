// Rows of attention backends: their caches, what is added to them, workspaces, platforms.
#include "engine/backend/attention_registry.h"

#include <gtest/gtest.h>

#include "engine/backend/attention_selector.h"
#include "engine/backend/attention_workspace.h"

namespace attnscope {
namespace attention_registry_test {

using Sizes = std::vector<std::int64_t>;

AttentionBackend mine() {
  AttentionBackend b;
  b.name = "MINE";
  b.what = "a backend of somebody else";
  b.platforms = {AttentionPlatform::kCuda};
  b.cache = {{"blocks", "tokens", "kv heads", "head"}, {}};
  b.cpu_lane = true;
  b.ops = {AS_OP_PAGED_ATTENTION};
  return b;
}

TEST(AttentionRegistry, KnowsRowsThatSayAllOfThemselves) {
  const AttentionRegistry registry;
  EXPECT_EQ(registry.all().size(), 29u);
  int here = 0;
  for (const AttentionBackend& backend : registry.all()) {
    SCOPED_TRACE(backend.name);
    EXPECT_EQ(backend.runs_here(), backend.why_not_here.empty());
    EXPECT_NE(std::string(backend.source), "");
    EXPECT_FALSE(backend.what.empty());
    here += backend.runs_here() ? 1 : 0;
    if (!backend.cache.hnd.empty()) {
      EXPECT_EQ(backend.cache.hnd.size(), backend.cache.axes.size());
    }
  }
  EXPECT_EQ(here, 13);
  EXPECT_EQ(registry.find("flash_attn"), registry.find("FLASH_ATTN"));
  EXPECT_EQ(registry.find("nobody"), nullptr);
}

TEST(AttentionRegistry, AddsWhatIsNewAndRefusesWhatIsThere) {
  AttentionRegistry registry;
  const AttentionBackend* flash = registry.find("FLASH_ATTN");
  ASSERT_TRUE(registry.add(mine()));
  EXPECT_EQ(registry.find("FLASH_ATTN"), flash);  // rows stay where they are
  EXPECT_EQ(registry.names().back(), "MINE");
  AttentionBackend again = mine();
  again.name = "mine";
  const auto refused = registry.add(again);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, AS_USAGE);
  EXPECT_EQ(refused.error().text(),
            "attention backend mine is there already; give yours another name: its rules do not "
            "take the place of others'");
  // It is tried only where it is named.
  AttentionRequest request;
  request.head_size = request.value_size = 40;
  request.backend = "mine";
  const auto selection = explain_backends(registry, request);
  ASSERT_TRUE(selection);
  const auto chosen = chosen_backend(*selection);
  ASSERT_TRUE(chosen);
  EXPECT_EQ((*chosen)->backend->name, "MINE");
  EXPECT_FALSE((*chosen)->tried());
}

TEST(AttentionRegistry, RefusesARowThatLacksSomething) {
  AttentionRegistry registry;
  const auto missing = [&](AttentionBackend backend) {
    const auto added = registry.add(std::move(backend));
    return added ? std::string("nothing") : added.error().message;
  };
  AttentionBackend b = mine();
  b.name.clear();
  EXPECT_NE(missing(b).find("has no name"), std::string::npos);
  b = mine(), b.platforms.clear();
  EXPECT_NE(missing(b).find("has no platforms"), std::string::npos);
  b = mine(), b.dtypes.clear();
  EXPECT_NE(missing(b).find("has no dtypes"), std::string::npos);
  b = mine(), b.cache_dtypes.clear();
  EXPECT_NE(missing(b).find("has no cache dtypes"), std::string::npos);
  b = mine(), b.cache.axes.clear();
  EXPECT_NE(missing(b).find("has no cache shape"), std::string::npos);
  b = mine(), b.variants = {{"one", {"auto"}}};
  EXPECT_NE(missing(b).find("has no choice of a variant"), std::string::npos);
  b = mine(), b.cpu_lane = false;
  EXPECT_NE(missing(b).find("has no reason why no lane runs it"), std::string::npos);
  b = mine(), b.ops.clear();
  EXPECT_NE(missing(b).find("has no ops that its lanes compute it by"), std::string::npos);
  EXPECT_EQ(missing(mine()), "nothing");
}

TEST(AttentionCache, ShapesAndStridesByBackendAndLayout) {
  const AttentionRegistry registry;
  CacheNumbers n{10, 16, 8, 128, 64, "auto"};
  const auto shape = [&](const char* name) {
    const auto found = cache_shape(*registry.find(name), n);
    EXPECT_TRUE(found) << name;
    return *found;
  };
  EXPECT_EQ(shape("FLASH_ATTN"), (Sizes{2, 10, 16, 8, 128}));
  EXPECT_EQ(shape("FLASHINFER"), (Sizes{10, 2, 16, 8, 128}));
  EXPECT_EQ(shape("CPU_ATTN"), (Sizes{2, 10, 8, 16, 128}));
  EXPECT_EQ(shape("ROCM_ATTN"), (Sizes{2, 10, 16 * 8 * 128}));
  EXPECT_EQ(shape("FLASH_ATTN_DIFFKV"), (Sizes{10, 16, 8, 192}));
  const AttentionBackend& flash = *registry.find("FLASH_ATTN");
  EXPECT_EQ(cache_strides(flash, shape("FLASH_ATTN"), "NHD"),
            (Sizes{10 * 16384, 16384, 1024, 128, 1}));
  // HND: a head's tokens lie together.
  EXPECT_EQ(cache_strides(flash, shape("FLASH_ATTN"), "HND"),
            (Sizes{10 * 16384, 16384, 128, 2048, 1}));
  n = {10, 64, 1, 576, 512, "auto"};
  EXPECT_EQ(shape("FLASHMLA_SPARSE"), (Sizes{10, 64, 576}));
  n.cache_dtype = "fp8_ds_mla";
  EXPECT_EQ(shape("FLASHMLA_SPARSE"), (Sizes{10, 64, 656}));
  n.head = 512;
  EXPECT_EQ(shape("FLASHMLA_SPARSE_DSV4"), (Sizes{10, 64, 584}));
  for (const char* name : {"MAMBA1", "TURBOQUANT"}) {
    const auto none = cache_shape(*registry.find(name), n);
    ASSERT_FALSE(none);
    EXPECT_NE(none.error().message.find("has no size"), std::string::npos);
  }
}

TEST(AttentionBackend, SaysWhichSizesItHas) {
  EXPECT_EQ(describe(HeadSizes{{}, 8, 8, 256}), "multiples of 8 from 8 up to 256");
  EXPECT_EQ(describe(HeadSizes{{}, 1, 32}), "any from 32");
  EXPECT_EQ(describe(BlockSizes{{32, 64}}), "32, 64 and multiples of them");
  EXPECT_EQ(describe(BlockSizes{{64}}), "64 and multiples of it");
  EXPECT_EQ(describe(CapabilityRange{{9, 0}, {10, 9}}), "9.x to 10.x");
  EXPECT_EQ(describe(CapabilityRange{{9, 0}, {9, 9}}), "9.x");
  EXPECT_EQ(describe(CapabilityRange{{7, 5}, {12, 1}}), "7.5 to 12.1");
  EXPECT_EQ(describe(CapabilityRange{}), "any");
  EXPECT_FALSE((HeadSizes{{}, 8, 8, 256}.has(260)));
  EXPECT_FALSE((HeadSizes{{}, 8, 8, 256}.has(100)));
  EXPECT_TRUE((HeadSizes{{}, 8, 8, 256}.has(256)));
  EXPECT_TRUE((BlockSizes{{16, 32}}.has(48)));
  EXPECT_FALSE((BlockSizes{{16, 32}}.has(24)));
}

TEST(AttentionBackend, PlatformsByName) {
  AttentionRequest request;
  ASSERT_TRUE(set_platform(request, "sm_103"));
  EXPECT_EQ(request.gpu, (ComputeCapability{10, 3}));
  ASSERT_TRUE(set_platform(request, "xpu"));
  EXPECT_EQ(request.platform, AttentionPlatform::kXpu);
  for (const char* wrong : {"sm_9", "sm_", "sm_09", "sm_1000", "90", "h100", "cuda", ""}) {
    const auto set = set_platform(request, wrong);
    ASSERT_FALSE(set) << wrong;
    EXPECT_NE(set.error().hint.find("sm_90"), std::string::npos);
  }
}

// By hand. The first one is 2^35 bytes: 32 GiB, not the 4 that are sometimes said.
TEST(AttentionWorkspace, SumsOfTheKnownExample) {
  WorkspaceNumbers n;
  const auto sums = workspace_sums(n);
  ASSERT_TRUE(sums);
  const Sizes bytes{std::int64_t{32} << 30, std::int64_t{128} << 20,
                    std::int64_t{1} << 20,  256 * 32 * 16 * 128 * 2,
                    256 * 32 * 16 * 2 * 4,  std::int64_t{5} * 8192 * 8 * 256 * 2};
  ASSERT_EQ(sums->size(), bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ((*sums)[i].bytes, bytes[i]) << i;
  EXPECT_EQ((*sums)[0].numbers, "256 x 8192 x 32 x 128 x 4");
  EXPECT_EQ((*sums)[0].formula, "batch x tokens x heads x head size x 4 bytes");
}

// Five requests of 163840 tokens, latent rows of 576: 900 MiB.
TEST(AttentionWorkspace, GatheredPrefillOfLatentRows) {
  WorkspaceNumbers n;
  n.max_seq = 163840;
  n.heads = 128;
  n.kv_heads = 0;
  n.head_size = 576;
  n.value_size = 512;
  auto sums = workspace_sums(n);
  ASSERT_TRUE(sums);
  EXPECT_EQ(sums->back().bytes, std::int64_t{900} << 20);
  n.gathered = 1000;
  n.max_seq = 513;  // two partitions
  sums = workspace_sums(n);
  ASSERT_TRUE(sums);
  EXPECT_EQ(sums->back().bytes, 1000 * 576 * 2);
  EXPECT_EQ((*sums)[4].bytes, 256 * 128 * 2 * 2 * 4);
}

TEST(AttentionWorkspace, NumbersThatAreNoSizes) {
  const auto error = [](const WorkspaceNumbers& n) {
    const auto sums = workspace_sums(n);
    return sums ? std::string() : sums.error().text();
  };
  WorkspaceNumbers n;
  n.splits = 0;
  EXPECT_EQ(error(n), "splits 0 is out of range; allowed: 1 to 1099511627776");
  n = {};
  n.kv_heads = -1;
  EXPECT_NE(error(n).find("KV heads -1"), std::string::npos);
  n = {};
  n.batch = n.max_seq = std::int64_t{1} << 30;
  EXPECT_NE(error(n).find("is more than 2^63 - 1 bytes; make one"), std::string::npos);
}

}  // namespace attention_registry_test
}  // namespace attnscope
