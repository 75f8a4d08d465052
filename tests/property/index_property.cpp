// AS_OP_SLOT_MAPPING, AS_OP_SWA_INDEX and AS_OP_C128_INDEX by what they mean: every slot holds the
// logical row that ref.exact lists, in the cache that the table describes.
#include <algorithm>
#include <string>

#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

struct ListCase {
  std::string name;
  std::vector<std::int64_t> lengths;
  std::int64_t queries = 1;
  std::int32_t rows = 64;  // rows of a page
};
void PrintTo(const ListCase& c, std::ostream* out) { *out << c.name; }

// Padding after every third token.
Tokens with_padding(const Tokens& tokens) {
  Tokens padded;
  for (std::size_t t = 0; t < tokens.positions.size(); ++t) {
    padded.request_of.push_back(tokens.request_of[t]);
    padded.positions.push_back(tokens.positions[t]);
    if (t % 3 != 2) continue;
    padded.request_of.push_back(-1);
    padded.positions.push_back(131);
  }
  return padded;
}

// slots: of the lane. rows: logical rows of ref.exact. Any shape.
void expect_same_rows(const as_tensor& slots, const as_tensor& rows, const TwinCache& cache,
                      Report* report) {
  const std::int64_t columns = slots.shape[slots.rank - 1];
  for_each_row(slots, [&](std::int64_t row, char*) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto slot = static_cast<std::int64_t>(element(slots, row, k));
      const auto expected = static_cast<std::int64_t>(element(rows, row, k));
      const std::int64_t found = slot < 0 ? -1 : cache.row_of_slot(slot);
      if (found == expected) continue;
      report->fail("indices", "list " + std::to_string(row) + ", entry " + std::to_string(k) +
                                  ": slot " + std::to_string(slot) + " holds row " +
                                  std::to_string(found) + ", expected row " +
                                  std::to_string(expected));
      return;
    }
  });
}

as_tensor one_group(const as_tensor& table) {
  return make_tensor(table.data, AS_I32, {1, table.shape[0], table.shape[1]});
}

class ListsOfRows : public testing::TestWithParam<ListCase> {};

TEST_P(ListsOfRows, SwaIndexNamesTheWindow) {
  const ListCase& c = GetParam();
  Report report(case_seed("swa rows " + c.name));
  SCOPED_TRACE(testing::Message() << "seed " << report.seed());
  Random random(report.seed());
  Memory memory;
  const Tokens tokens = last_tokens(c.lengths, c.queries);
  TwinCache cache(AS_RECORD_LATENT, AS_HEAD_DIM, c.lengths, {c.rows, 0}, random);
  std::vector<std::int32_t> query_start = {0};
  std::vector<std::int32_t> seq_lens;
  for (std::size_t r = 0; r < c.lengths.size(); ++r) {
    const std::int64_t n = std::min(c.queries, c.lengths[r]);
    query_start.push_back(static_cast<std::int32_t>(query_start.back() + n));
    seq_lens.push_back(static_cast<std::int32_t>(c.lengths[r]));
    cache.drop_below(static_cast<std::int64_t>(r), c.lengths[r] - n - kWindow + 1);
  }
  OpParams engine;
  auto& p = engine.init<as_swa_index_params>(AS_OP_SWA_INDEX);
  p.tables = one_group(cache.table());
  p.query_start = memory.ints(query_start, {static_cast<std::int64_t>(query_start.size())});
  p.seq_lens = memory.ints(seq_lens, {static_cast<std::int64_t>(seq_lens.size())});
  p.request_of = memory.ints(tokens.request_of, {tokens.size()});
  p.indices = memory.make(AS_I32, {1, tokens.size(), kWindow}, 5);
  p.lens = memory.make(AS_I32, {tokens.size()});
  p.block_size = c.rows;
  p.window = kWindow;
  ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
  memory.check_guards(&report);
  OpParams logical = with_own_outputs(engine, &memory);
  auto& l = logical.get<as_swa_index_params>();
  l.tables = one_group(cache.logical_table());
  l.block_size = 0;
  ASSERT_TRUE(run(*reference::exact_lane(), logical, &report)) << report;
  judge(engine, logical, "lens", &report);
  expect_same_rows(p.indices, l.indices, cache, &report);
  EXPECT_TRUE(report.ok()) << report;
}

TEST_P(ListsOfRows, C128IndexNamesAllEntries) {
  const ListCase& c = GetParam();
  Report report(case_seed("c128 rows " + c.name));
  SCOPED_TRACE(testing::Message() << "seed " << report.seed());
  Random random(report.seed());
  Memory memory;
  // 64 times as long, so that lists fill several pages.
  std::vector<std::int64_t> lengths = c.lengths;
  std::vector<std::int64_t> entries;
  for (std::int64_t& n : lengths) {
    n *= 64;
    entries.push_back(n / 128);
  }
  const Tokens tokens = with_padding(last_tokens(lengths, c.queries));
  const TwinCache cache(AS_RECORD_LATENT, AS_HEAD_DIM, entries, {c.rows, 0}, random);
  const std::int64_t width =
      as_c128_index_width(*std::max_element(lengths.begin(), lengths.end()), 1 << 20);
  OpParams engine;
  auto& p = engine.init<as_c128_index_params>(AS_OP_C128_INDEX);
  p.table = cache.table();
  p.positions = memory.ints64(tokens.positions);
  p.request_of = memory.ints(tokens.request_of, {tokens.size()});
  p.indices = memory.make(AS_I32, {tokens.size(), width}, 3);
  p.lens = memory.make(AS_I32, {tokens.size()});
  p.ratio = 128;
  p.rows_per_block = c.rows;
  // Padding at position 131 would see an entry.
  ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
  memory.check_guards(&report);
  OpParams logical = with_own_outputs(engine, &memory);
  auto& l = logical.get<as_c128_index_params>();
  l.table = cache.logical_table();
  l.rows_per_block = 0;
  ASSERT_TRUE(run(*reference::exact_lane(), logical, &report)) << report;
  judge(engine, logical, "lens", &report);
  expect_same_rows(p.indices, l.indices, cache, &report);
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ListsOfRows,
    testing::Values(ListCase{"no_tokens", {0, 0}}, ListCase{"first_tokens", {1, 3, 0, 4}, 5, 3},
                    ListCase{"edges", {127, 128, 129}, 2, 61},
                    ListCase{"edges_one_row", {128, 129, 127}, 5, 1},
                    ListCase{"blocks", {255, 256}, 5, 64}, ListCase{"prompt", {256, 1}, 256, 2},
                    ListCase{"long", {2050, 2051}, 5, 64}, ListCase{"long_odd", {2051, 7}, 2, 53}),
    name_of<ListCase>);

// A pool whose slots need more than 32 bits, and every choice of the optional outputs.
TEST(SlotMappingOfLargePools, MatchesBothReferences) {
  Report report(case_seed("large pool"));
  SCOPED_TRACE(testing::Message() << "seed " << report.seed());
  Random random(report.seed());
  const std::vector<std::int64_t> lengths = {2051, 129, 4};
  const Tokens tokens = with_padding(last_tokens(lengths, 130));
  for (int outputs = 0; outputs < 8; ++outputs) {
    Memory memory;
    OpParams engine;
    auto& p = engine.init<as_slot_mapping_params>(AS_OP_SLOT_MAPPING);
    p.groups = memory.ints({256, 0, 64, 128}, {2, 2});
    p.tables = memory.make(AS_I32, {2, 3, 40});
    for (std::int64_t i = 0; i < 240; ++i) {
      *at<std::int32_t>(p.tables, i / 120, i / 40 % 3, i % 40) =
          static_cast<std::int32_t>((1 << 30) + below(random, 1 << 30));
    }
    p.positions = memory.ints64(tokens.positions);
    p.request_of = memory.ints(tokens.request_of, {tokens.size()});
    p.slots = memory.make(AS_I64, {2, tokens.size()}, 2);
    if ((outputs & 1) != 0) p.c4_slots = memory.make(AS_I64, {tokens.size()});
    if ((outputs & 2) != 0) p.c4_lens = memory.make(AS_I32, {tokens.size()});
    if ((outputs & 4) != 0) p.c128_slots = memory.make(AS_I64, {tokens.size()});
    p.mla_group = outputs == 0 ? -1 : 0;
    ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
    memory.check_guards(&report);
    for (const as_lane* reference : {reference::sim_lane(), reference::exact_lane()}) {
      const OpParams own = with_own_outputs(engine, &memory);
      ASSERT_TRUE(run(*reference, own, &report)) << report;
      judge_all(engine, own, &report);
    }
    EXPECT_GT(*at<std::int64_t>(p.slots, 0, 0), std::int64_t{1} << 38);
  }
  EXPECT_TRUE(report.ok()) << report;
}

}  // namespace
}  // namespace attnscope::properties
