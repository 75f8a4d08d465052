// Dual attention of rows in host memory: over those that lie in the pool while the others travel,
// then over the others, and both states merged. It is attention over all of them but for the order
// of sums, and without one of the parts it is not.
#include <algorithm>
#include <cmath>

#include "kernels/params/helper_params.h"
#include "kernels/params/mla_params.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

constexpr std::int64_t kDualHeads = 8, kDualTokens = 3, kDualListed = 64, kDualRows = 150;

struct DualCase {
  const char* name;
  int missed;  // of a hundred rows
};
void PrintTo(const DualCase& c, std::ostream* out) { *out << c.name; }
constexpr DualCase kDualCases[] = {
    {"nothing_missed", 0}, {"few_missed", 12}, {"half_missed", 50}, {"all_missed", 100}};

class DualAttention : public testing::TestWithParam<DualCase> {};

TEST_P(DualAttention, OfTwoPartsIsAttentionOverAll) {
  Report report(case_seed(std::string("dual ") + GetParam().name));
  Random random(report.seed());
  Memory memory;
  // Pages of 50 rows in bf16.
  const as_tensor rows = memory.normals(AS_BF16, {kDualRows, AS_MLA_WIDTH}, random);
  as_cache cache{};
  cache.data = make_tensor(static_cast<std::uint8_t*>(rows.data), {3, 50 * 2 * AS_MLA_WIDTH});
  cache.record = AS_RECORD_BF16;
  cache.rows_per_block = 50;
  cache.width = AS_MLA_WIDTH;
  const as_tensor q = memory.normals(AS_BF16, {kDualTokens, kDualHeads, AS_MLA_WIDTH}, random);
  std::vector<std::int32_t> all, resident, missed;
  for (std::int64_t t = 0; t < kDualTokens; ++t) {
    for (std::int64_t k = 0; k < kDualListed; ++k) {
      const auto slot = static_cast<std::int32_t>(2 * k + t);
      const bool travels = below(random, 100) < GetParam().missed;
      all.push_back(slot);
      resident.push_back(travels ? -1 : slot);
      missed.push_back(travels ? slot : -1);
    }
  }
  const auto attend = [&](const std::vector<std::int32_t>& list) {
    OpParams params;
    auto& p = params.init<as_sparse_mla_attention_params>(AS_OP_SPARSE_MLA_ATTENTION);
    p.q = q;
    p.cache = cache;
    p.indices = memory.ints(list, {kDualTokens, kDualListed});
    p.topk_length =
        memory.ints(std::vector<std::int32_t>(kDualTokens, static_cast<std::int32_t>(kDualListed)),
                    {kDualTokens});
    p.o = memory.make(AS_BF16, {kDualTokens, kDualHeads, AS_MLA_LATENT});
    p.lse = memory.make(AS_F32, {kDualTokens, kDualHeads});
    p.scale = 0x1p-5;
    EXPECT_TRUE(run(*cpu::lane(), params, &report)) << report;
    return params;
  };
  const OpParams whole = attend(all), here = attend(resident), there = attend(missed);
  const auto& w = whole.get<as_sparse_mla_attention_params>();
  const auto& a = here.get<as_sparse_mla_attention_params>();
  const auto& b = there.get<as_sparse_mla_attention_params>();
  OpParams merged;
  auto& m = merged.init<as_merge_states_params>(AS_OP_MERGE_STATES);
  m.a = a.o, m.lse_a = a.lse, m.b = b.o, m.lse_b = b.lse;
  m.out = memory.make(AS_BF16, {kDualTokens, kDualHeads, AS_MLA_LATENT});
  m.lse = memory.make(AS_F32, {kDualTokens, kDualHeads});
  ASSERT_TRUE(run(*cpu::lane(), merged, &report)) << report;

  double beyond = 0;  // of the missed part alone, of the bound
  for (std::int64_t t = 0; t < kDualTokens; ++t) {
    for (std::int64_t h = 0; h < kDualHeads; ++h) {
      EXPECT_NEAR(*at<float>(m.lse, t, h), *at<float>(w.lse, t, h), 1e-4);
      double largest = 0;
      for (std::int64_t d = 0; d < AS_MLA_LATENT; ++d) {
        for (const as_tensor* part : {&w.o, &a.o, &b.o}) {
          largest = std::max<double>(largest, std::abs(to_float(*at<bf16_t>(*part, t, h, d))));
        }
      }
      // Each part is rounded once, and so are the merged state and the whole.
      const double bound = 4 * kBf16Half * largest;
      for (std::int64_t d = 0; d < AS_MLA_LATENT; ++d) {
        const double right = to_float(*at<bf16_t>(w.o, t, h, d));
        EXPECT_NEAR(to_float(*at<bf16_t>(m.out, t, h, d)), right, bound);
        beyond = std::max(beyond, std::abs(to_float(*at<bf16_t>(b.o, t, h, d)) - right) / bound);
      }
    }
  }
  // Merged without what lies in the pool: seen, unless nothing lay there.
  EXPECT_EQ(beyond > 1, GetParam().missed < 100) << beyond;
}

INSTANTIATE_TEST_SUITE_P(Shares, DualAttention, testing::ValuesIn(kDualCases),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace attnscope::properties
