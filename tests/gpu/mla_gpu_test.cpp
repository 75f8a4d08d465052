// The ops of absorbed MLA on the GPU beside ref.sim, with tensors of the host and of the GPU: the
// cases of the CPU lane, and of attention over lists those that one block, a cluster of blocks and
// a second kernel finish.
#include "tests/gpu/device_lane.h"
#include "tests/gpu/support.h"

namespace attnscope::gpu_tests {
namespace {

namespace mla = properties::mla;

const Way kMlaWays[] = {Way::kHost, Way::kDevice};

TEST(GpuMla, AttentionIsTheReferences) {
  std::vector<mla::MlaCase> cases = mla::attention_cases();
  const std::vector<std::int64_t> few = {300, 129}, many(24, 200), alone = {900};
  cases.push_back({"one block a token", many, 3, 64, 64, AS_RECORD_LATENT_656, true, 100});
  cases.push_back({"clusters", many, 1, 128, 64, AS_RECORD_LATENT_656, true, 400});
  cases.push_back(
      {"clusters that share unevenly", many, 1, 37, 64, AS_RECORD_LATENT_656, true, 500});
  cases.push_back({"a second kernel", alone, 1, 64, 64, AS_RECORD_LATENT_656, true, 900});
  cases.push_back({"pages of seven", few, 2, 100, 7, AS_RECORD_LATENT_656, true, 200});
  cases.push_back({"sixteen heads over a context", alone, 2, 16, 64, AS_RECORD_LATENT_656, false});
  cases.push_back({"sixty-four heads in bf16", few, 5, 64, 64, AS_RECORD_BF16, false});
  for (const mla::MlaCase& c : cases) {
    for (const Way way : kMlaWays) {
      const Report report = mla::check_attention(lane(way), c);
      EXPECT_TRUE(report.ok()) << c.name << ", " << way_name(way) << ": " << report;
    }
  }
}

TEST(GpuMla, RowsAreTheReferencesByteForByte) {
  for (const mla::RowCase& c : mla::row_cases()) {
    for (const Way way : kMlaWays) {
      for (const auto check :
           {mla::check_latent_rows, mla::check_index_keys, mla::check_index_queries}) {
        const Report report = check(lane(way), c);
        EXPECT_TRUE(report.ok()) << c.name << ", " << way_name(way) << ": " << report;
      }
    }
  }
}

TEST(GpuMla, AbsorbedProductsAreTheReferences) {
  for (const std::int64_t tokens : {1, 5, 37, 130}) {
    for (const auto& [plain, values] : {std::pair{8, 256}, {40, 24}, {128, 128}}) {
      for (const Way way : kMlaWays) {
        const Report report = mla::check_absorbed(lane(way), plain, values, tokens);
        EXPECT_TRUE(report.ok()) << plain << ", " << tokens << " tokens, " << way_name(way) << ": "
                                 << report;
      }
    }
  }
}

}  // namespace
}  // namespace attnscope::gpu_tests
