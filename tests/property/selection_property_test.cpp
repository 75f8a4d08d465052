// AS_OP_INDEXER_TOPK, AS_OP_TOPK_TO_SLOTS and AS_OP_SAMPLE.
#include <climits>
#include <cmath>
#include <limits>

#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The first entries of Scores::kSplit.
constexpr std::int64_t kRising = 20000;

float score(Scores kind, std::int64_t column, Random& random) {
  switch (kind) {
    case Scores::kNormal:
      return normal(random);
    case Scores::kFewValues:
      return static_cast<float>(below(random, 4) - 1);
    case Scores::kAllEqual:
      return 0.25f;
    case Scores::kNaN:
      return below(random, 3) == 0 ? std::copysign(kNaN, normal(random)) : normal(random);
    case Scores::kAllNaN:
      return kNaN;
    case Scores::kInfinities: {
      const std::int64_t k = below(random, 5);
      return k == 0 ? kInfinity : k == 1 ? -kInfinity : k == 2 ? kNaN : normal(random);
    }
    case Scores::kZeros: {
      constexpr float kTiny[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-149f};
      return kTiny[below(random, 4)];
    }
    case Scores::kNarrow:
      return 25.0f + 1e-4f * normal(random);
    case Scores::kSplit:
      if (column < kRising) return static_cast<float>(column);
      return below(random, 8) == 0 ? 1e5f + normal(random) : 7.0f;
    default:
      return -1e-3f * static_cast<float>(column);
  }
}

}  // namespace

Report check_topk(const Lane& lane, const TopkCase& c) {
  Report report(case_seed("topk " + c.name));
  Random random(report.seed());
  Memory memory;
  const auto n = static_cast<std::int64_t>(c.lens.size());
  std::int64_t columns = c.spare_columns;
  for (std::int32_t len : c.lens) columns = std::max(columns, len + c.spare_columns);
  OpParams engine;
  auto& p = engine.init<as_indexer_topk_params>(AS_OP_INDEXER_TOPK);
  p.logits = memory.make(AS_F32, {n, columns}, 5);
  for (std::int64_t t = 0; t < n; ++t) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const bool garbage = k >= c.lens[static_cast<std::size_t>(t)];
      *at<float>(p.logits, t, k) =
          garbage ? (k % 2 == 0 ? kInfinity : kNaN) : score(c.scores, k, random);
    }
  }
  p.lens = memory.ints(c.lens, {n});
  p.indices = memory.make(AS_I32, {n, c.k}, 2);
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  const OpParams sim = with_own_outputs(engine, &memory);
  if (!run(*reference::sim_lane(), sim, &report)) return report;
  judge_all(engine, sim, &report);
  // Ties go to the lowest entry and the order is ascending, so that more than the set is equal.
  judge_integers(engine, &memory, &report);
  return report;
}

namespace {

class TopkProperty : public testing::TestWithParam<TopkCase> {};

TEST_P(TopkProperty, MatchesBothReferences) {
  const Report report = check_topk(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

const std::vector<std::int32_t> kLens = {0, 1, 3, 4, 127, 128, 129, 255, 256};

const TopkCase kTopkCases[] = {
    {"no_tokens", Scores::kNormal, {}, 8, 4},
    {"k_1", Scores::kNormal, kLens, 1, 3},
    {"k_is_len", Scores::kNormal, {128, 128}, 128},
    {"k_is_len_less_1", Scores::kNormal, {128, 129}, 127, 1},
    {"k_is_len_plus_1", Scores::kNormal, {128, 127}, 129},
    {"few_values", Scores::kFewValues, kLens, 64, 7},
    {"few_values_long", Scores::kFewValues, {2050, 2051, 513}, 512, 1},
    {"all_equal", Scores::kAllEqual, kLens, 127},
    {"all_equal_long", Scores::kAllEqual, {2051}, 512, 2},
    {"nan", Scores::kNaN, kLens, 128, 3},
    {"more_nan_than_left_out", Scores::kNaN, {256, 255, 129}, 250, 3},
    {"all_nan", Scores::kAllNaN, {4, 129, 2050}, 64, 1},
    {"infinities", Scores::kInfinities, kLens, 53, 3},
    {"zeros_and_denormals", Scores::kZeros, kLens, 61, 3},
    {"falling", Scores::kFalling, {2050, 2051, 128}, 512, 3},
    {"long", Scores::kNormal, {2050, 2051}, 512},
    {"narrow", Scores::kNarrow, {2050, 128}, 512, 1},
    {"split", Scores::kSplit, {22050, 2051}, 1024},
};
INSTANTIATE_TEST_SUITE_P(Shapes, TopkProperty, testing::ValuesIn(kTopkCases), name_of<TopkCase>);

class TopkToSlotsProperty : public testing::TestWithParam<Pages> {};

TEST_P(TopkToSlotsProperty, EqualsBothReferencesAndItsLogicalTwin) {
  const std::int32_t rows = GetParam().rows;
  Report report(case_seed("topk_to_slots " + std::to_string(rows)));
  Random random(report.seed());
  Memory memory;
  const std::vector<std::int64_t> entries = {0, 1, 3, 128, 129, 512};
  const TwinCache cache(AS_RECORD_INDEX_MXFP4, AS_INDEX_DIM, entries, GetParam(), random);
  for (const std::int64_t tokens : {0, 1, 12}) {
    for (const std::int64_t k : {1, 16, 128}) {
      OpParams engine;
      auto& p = engine.init<as_topk_to_slots_params>(AS_OP_TOPK_TO_SLOTS);
      p.indices = memory.make(AS_I32, {tokens, k}, 1);
      p.token_to_req = memory.make(AS_I32, {tokens});
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::int64_t r = below(random, 7) - 1;  // -1: padding, whose entries mean nothing
        *at<std::int32_t>(p.token_to_req, t) = static_cast<std::int32_t>(r);
        for (std::int64_t i = 0; i < k; ++i) {
          const std::int64_t limit = r < 0 ? 0 : entries[static_cast<std::size_t>(r)];
          std::int64_t entry = r < 0 && i % 2 == 0 ? INT_MAX : -1;
          if (limit > 0 && below(random, 4) > 0) entry = below(random, limit);
          *at<std::int32_t>(p.indices, t, i) = static_cast<std::int32_t>(entry);
        }
      }
      p.table = cache.table();
      p.slots = memory.make(AS_I32, {tokens, k}, 1);
      p.lens = memory.make(AS_I32, {tokens});
      p.rows_per_block = rows;
      ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
      judge_integers(engine, &memory, &report);

      OpParams logical = with_own_outputs(engine, &memory);
      auto& l = logical.get<as_topk_to_slots_params>();
      l.table = cache.logical_table();
      l.rows_per_block = 0;
      ASSERT_TRUE(run(*reference::sim_lane(), logical, &report)) << report;
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t i = 0; i < k; ++i) {
          const std::int64_t slot = *at<std::int32_t>(p.slots, t, i);
          const std::int64_t row = *at<std::int32_t>(l.slots, t, i);
          ASSERT_EQ(slot < 0 ? -1 : cache.row_of_slot(slot), row) << report;
        }
      }
    }
  }
  memory.check_guards(&report);
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(PageRows, TopkToSlotsProperty,
                         testing::Values(Pages{1}, Pages{2}, Pages{3}, Pages{53}, Pages{61},
                                         Pages{64}),
                         [](const auto& test) { return std::to_string(test.param.rows); });

TEST(SampleProperty, EqualsBothReferences) {
  Report report(case_seed("sample"));
  Random random(report.seed());
  Memory memory;
  for (const std::int64_t vocabulary : {1, 3, 127, 129, 2051}) {
    for (int kind = 0; kind <= static_cast<int>(Scores::kFalling); ++kind) {
      for (const std::int64_t rows : {0, 1, 5}) {
        OpParams engine;
        auto& p = engine.init<as_sample_params>(AS_OP_SAMPLE);
        p.logits = memory.make(AS_F32, {rows, vocabulary}, 3);
        for (std::int64_t i = 0; i < rows * vocabulary; ++i) {
          *at<float>(p.logits, i / vocabulary, i % vocabulary) =
              score(static_cast<Scores>(kind), i % vocabulary, random);
        }
        p.tokens = memory.make(AS_I32, {rows});
        ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
        judge_integers(engine, &memory, &report);
      }
    }
  }
  memory.check_guards(&report);
  EXPECT_TRUE(report.ok()) << report;
}

}  // namespace
}  // namespace attnscope::properties
