// Rows of arbitrary bits, given to the quantisers of AS_OP_COMPRESS_INSERT,
// AS_OP_INDEXER_COMPRESS_INSERT and AS_OP_INDEXER_Q: NaN, infinities, denormals and values near the
// borders of codes and scales still give the bytes of ref.sim.
#include <algorithm>
#include <cmath>
#include <string>

#include "tests/property/checks.h"

namespace attnscope::properties {
namespace any_bits_property_test {

// Kinds of rows, by row number.
enum Kind { kAnyBits, kFewExponents, kBorders, kDenormals, kRareSpecial, kZeros, kKinds };

std::uint16_t random_bits(Kind kind, unsigned exponent, Random& random) {
  const auto bits = static_cast<std::uint16_t>(random());
  switch (kind) {
    case kAnyBits:
      return bits;
    case kFewExponents: {
      const unsigned near = std::min(254u, exponent + (bits >> 7 & 7u));
      return static_cast<std::uint16_t>((bits & 0x807fu) | near << 7);
    }
    case kBorders: {
      // 448 and 6 times a power of two, the bf16 values beside them, and halves between codes.
      constexpr std::uint16_t kMantissa[] = {0x60, 0x5f, 0x61, 0x40, 0x3f, 0x41, 0x00, 0x01,
                                             0x7f, 0x08, 0x18, 0x20, 0x28, 0x38, 0x48, 0x58};
      const unsigned near = std::min(254u, exponent + (bits >> 8 & 7u));
      return static_cast<std::uint16_t>((bits & 0x8000u) | near << 7 | kMantissa[bits & 15u]);
    }
    case kDenormals:
      return bits & 0x807fu;
    case kRareSpecial: {
      constexpr std::uint16_t kSpecial[] = {0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0x8000};
      if (below(random, 40) == 0) return kSpecial[below(random, 6)];
      return to_bf16(normal(random)).bits;
    }
    default:
      return bits & 0x8000u;
  }
}

// bf16 [.., dim] with a kind and a range of exponents for every row.
void fill_rows(const as_tensor& rows, Random& random) {
  for_each_row(rows, [&](std::int64_t row, char* data) {
    const auto exponent = static_cast<unsigned>(below(random, 255));
    for (std::int64_t d = 0; d < rows.shape[rows.rank - 1]; ++d) {
      reinterpret_cast<bf16_t*>(data)[d].bits =
          random_bits(static_cast<Kind>(row % kKinds), exponent, random);
    }
  });
}

struct RecordCase {
  std::string name;
  std::int32_t record = AS_RECORD_LATENT;
  Pages pages;
  std::int32_t scale_floor = AS_SCALE_FLOOR_1E4;
  std::int32_t fp4_rule = AS_FP4_EVEN;
};
void PrintTo(const RecordCase& c, std::ostream* out) { *out << c.name; }

class GivenRows : public testing::TestWithParam<RecordCase> {};

TEST_P(GivenRows, OfAnyBitsGiveTheBytesOfTheReference) {
  const RecordCase& c = GetParam();
  Report report(case_seed("given " + c.name));
  SCOPED_TRACE(testing::Message() << "seed " << report.seed());
  Random random(report.seed());
  Memory memory;
  const bool latent = c.record == AS_RECORD_LATENT;
  const std::int32_t dim = latent ? AS_HEAD_DIM : AS_INDEX_DIM;
  const std::vector<std::int64_t> entries = {255, 1, 300};
  const Tokens tokens = last_tokens(entries, 300);
  TwinCache cache(c.record, dim, entries, c.pages, random);
  OpParams engine;
  auto& p = engine.init<as_compress_insert_params>(latent ? AS_OP_COMPRESS_INSERT
                                                          : AS_OP_INDEXER_COMPRESS_INSERT);
  p.row = memory.make(AS_BF16, {tokens.size(), dim}, 3);
  fill_rows(p.row, random);
  std::vector<std::int64_t> slots;
  for (std::size_t t = 0; t < tokens.positions.size(); ++t) {
    const bool padding = t % 7 == 5;
    slots.push_back(padding ? -1 : cache.slot(tokens.token_to_req[t], tokens.positions[t]));
  }
  p.slots = memory.ints64(slots);
  p.cache = cache.paged();
  p.ratio = 4;
  p.rows_given = 1;
  p.scale_floor = c.scale_floor;
  p.fp4_rule = c.fp4_rule;
  const std::vector<unsigned char> before = cache.slab();
  ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
  memory.check_guards(&report);
  OpParams sim = engine;
  auto& s = sim.get<as_compress_insert_params>();
  const RowsOut out = rows_out(p.cache, p.slots, false, &memory);
  s.cache = out.cache;
  s.slots = out.slots;
  ASSERT_TRUE(run(*reference::sim_lane(), sim, &report)) << report;
  judge_slab(cache, before, p.slots, s.cache.data, &report);
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(
    Records, GivenRows,
    testing::Values(
        RecordCase{"latent", AS_RECORD_LATENT, {64, 0}},
        RecordCase{"latent_odd_pages", AS_RECORD_LATENT, {53, 9}},
        RecordCase{"latent_two_rows", AS_RECORD_LATENT, {2, 1}},
        RecordCase{"fp8", AS_RECORD_INDEX_FP8, {64, 0}},
        RecordCase{"fp8_odd_pages", AS_RECORD_INDEX_FP8, {3, 4}},
        RecordCase{"mxfp4", AS_RECORD_INDEX_MXFP4, {64, 0}},
        RecordCase{"mxfp4_odd_pages", AS_RECORD_INDEX_MXFP4, {61, 5}},
        RecordCase{"latent_low_floor", AS_RECORD_LATENT, {64, 0}, AS_SCALE_FLOOR_1E8},
        RecordCase{"fp8_low_floor", AS_RECORD_INDEX_FP8, {64, 0}, AS_SCALE_FLOOR_1E8},
        RecordCase{"mxfp4_down", AS_RECORD_INDEX_MXFP4, {64, 0}, AS_SCALE_FLOOR_1E4, AS_FP4_DOWN}),
    name_of<RecordCase>);

struct GivenQueryCase {
  std::string name;
  std::int32_t format = AS_RECORD_INDEX_FP8;
  std::int64_t tokens = 1;
  std::int64_t heads = 1;
  std::int32_t scale_floor = AS_SCALE_FLOOR_1E4;
  std::int32_t fp4_rule = AS_FP4_EVEN;
};
void PrintTo(const GivenQueryCase& c, std::ostream* out) { *out << c.name; }

class GivenQueries : public testing::TestWithParam<GivenQueryCase> {};

TEST_P(GivenQueries, OfAnyBitsGiveTheBytesOfTheReference) {
  const GivenQueryCase& c = GetParam();
  Report report(case_seed("given " + c.name));
  SCOPED_TRACE(testing::Message() << "seed " << report.seed());
  Random random(report.seed());
  Memory memory;
  const bool fp4 = c.format == AS_RECORD_INDEX_MXFP4;
  OpParams engine;
  auto& p = engine.init<as_indexer_q_params>(AS_OP_INDEXER_Q);
  p.q_row = memory.make(AS_BF16, {c.tokens, c.heads, AS_INDEX_DIM}, 3);
  fill_rows(p.q_row, random);
  p.weights_raw = memory.normals(AS_BF16, {c.tokens, c.heads}, random);
  p.q = memory.make(AS_U8, {c.tokens, c.heads, fp4 ? 64 : 128}, 5);
  if (fp4) p.q_scale = memory.make(AS_U8, {c.tokens, c.heads, 4}, 1);
  p.weights = memory.make(AS_F32, {c.tokens, c.heads}, 1);
  p.format = c.format;
  p.rows_given = 1;
  p.scale_floor = c.scale_floor;
  p.fp4_rule = c.fp4_rule;
  ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
  memory.check_guards(&report);
  OpParams sim = with_own_outputs(engine, &memory);
  auto& s = sim.get<as_indexer_q_params>();
  s.q_row = p.q_row;
  ASSERT_TRUE(run(*reference::sim_lane(), sim, &report)) << report;
  judge_equal("q", p.q, s.q, &report);
  if (fp4) judge_equal("q_scale", p.q_scale, s.q_scale, &report);
  judge(engine, sim, "weights", &report);
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(
    Formats, GivenQueries,
    testing::Values(GivenQueryCase{"fp8_one_head", AS_RECORD_INDEX_FP8, 200},
                    GivenQueryCase{"fp8", AS_RECORD_INDEX_FP8, 30, 64},
                    GivenQueryCase{"mxfp4_one_head", AS_RECORD_INDEX_MXFP4, 200},
                    GivenQueryCase{"mxfp4", AS_RECORD_INDEX_MXFP4, 30, 64},
                    GivenQueryCase{"fp8_low_floor", AS_RECORD_INDEX_FP8, 30, 8, AS_SCALE_FLOOR_1E8},
                    GivenQueryCase{"mxfp4_down", AS_RECORD_INDEX_MXFP4, 30, 8, AS_SCALE_FLOOR_1E4,
                                   AS_FP4_DOWN}),
    name_of<GivenQueryCase>);

}  // namespace any_bits_property_test
}  // namespace attnscope::properties
