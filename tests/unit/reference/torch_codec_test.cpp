// Roundings and codes of the tensor programs: the same bits as the plain codec, for all values that
// matter. They are reached through the ops.
#include <bit>
#include <cmath>

#include "tests/unit/reference/lane_test.h"
#include "tests/unit/reference/plain_codec.h"

namespace attnscope::reference {
namespace torch_codec_test {

// The same bits, or two NaN.
void expect_same(double got, double expected, double of) {
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(got)) << of;
  } else {
    ASSERT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(expected)) << of;
  }
}

// Every number of 16 bits that bf16 has, the middles between neighbours, and a last place beside
// those; in [T,1,512], dims 0 .. 447 of which inverse_rope rounds and nothing else.
Doubles around_bf16() {
  Doubles all;
  for (int bits = 0; bits < 65536; ++bits) {
    const double a = bf16_value(static_cast<std::uint16_t>(bits));
    all.push_back(a);
    const double b = bf16_value(static_cast<std::uint16_t>(bits + 1));
    if (bits % 32768 >= 0x7F80) continue;
    const double middle = bits % 32768 == 0x7F7F ? std::copysign(0x1.FFp127, a) : (a + b) / 2;
    for (const double x : {middle, std::nextafter(middle, 0), std::nextafter(middle, 2 * middle)}) {
      all.push_back(x);
    }
  }
  for (const double x : {1e-300, 5e-324, 0x1p-134, 0x1p-135, 1e39, 1e300, 0x1p1023}) {
    all.push_back(x);
    all.push_back(-x);
  }
  return all;
}

TEST(TorchCodec, RoundsToBf16AsThePlainOne) {
  const Doubles values = around_bf16();
  const std::size_t tokens = (values.size() + 447) / 448;
  Doubles o(tokens * 512), out(o.size());
  std::vector<bf16_t> narrow(o.size());
  for (std::size_t i = 0; i < values.size(); ++i) o[i / 448 * 512 + i % 448] = values[i];
  Int64s positions(tokens, 0);
  auto p = new_params<as_inverse_rope_params>();
  const auto rows = static_cast<std::int64_t>(tokens);
  p.o = over(o, {rows, 1, 512});
  p.positions = over(positions, {rows});
  p.rope = plain_rope();
  p.out = over(out, {rows, 1, 512});
  run(sim_lane(), AS_OP_INVERSE_ROPE, p);
  p.out = over(narrow, {rows, 1, 512});
  run(exact_lane(), AS_OP_INVERSE_ROPE, p);  // rounded where it is stored
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t at = i / 448 * 512 + i % 448;
    expect_same(out[at], round_to_bf16(values[i]), values[i]);
    ASSERT_EQ(narrow[at].bits, bf16_bits(values[i])) << values[i];  // of every NaN too
  }
}

// Index rows [T,128] as records, and what reading them back gives.
struct Rows {
  std::vector<Byte> records;
  Doubles values;
};
Rows encoded(Doubles values, std::int32_t record, std::int32_t scale_floor, std::int32_t fp4_rule) {
  const auto tokens = static_cast<std::int64_t>(values.size()) / 128;
  const std::int64_t bytes = record == AS_RECORD_INDEX_FP8 ? 132 : 68;
  Rows rows{std::vector<Byte>(static_cast<std::size_t>(tokens * bytes)), Doubles(values.size())};
  Int64s slots;
  for (std::int64_t t = 0; t < tokens; ++t) slots.push_back(t);
  auto p = new_params<as_compress_insert_params>();
  p.rows_given = 1;
  p.row = over(values, {tokens, 128});
  p.slots = over(slots, {tokens});
  p.scale_floor = scale_floor;
  p.fp4_rule = fp4_rule;
  p.cache = logical(rows.records, record, 128, bytes);
  run(sim_lane(), AS_OP_INDEXER_COMPRESS_INSERT, p);
  p.cache = logical(rows.values, record, 128, 128);
  run(sim_lane(), AS_OP_INDEXER_COMPRESS_INSERT, p);
  return rows;
}

void expect_plain(const Doubles& values, std::int32_t record, std::int32_t scale_floor,
                  std::int32_t fp4_rule) {
  const Rows rows = encoded(values, record, scale_floor, fp4_rule);
  const std::size_t bytes = record == AS_RECORD_INDEX_FP8 ? 132 : 68;
  std::vector<Byte> expected(bytes);
  Doubles back(128);
  for (std::size_t t = 0; t < values.size() / 128; ++t) {
    Byte* scales = expected.data() + (record == AS_RECORD_INDEX_FP8 ? 128 : 64);
    encode_record(record, 128, values.data() + t * 128, expected.data(), scales,
                  {scale_floor, fp4_rule});
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(),
                           rows.records.begin() + static_cast<std::ptrdiff_t>(t * bytes)))
        << "row " << t;
    decode_record(record, 128, expected.data(), scales, back.data());
    for (std::size_t i = 0; i < 128; ++i) {
      expect_same(rows.values[t * 128 + i], back[i], values[t * 128 + i]);
    }
  }
}

// Values at, in the middle of and beside all codes, under scales of every size: a row's first value
// gives the scale.
Doubles around_codes(double most, const Doubles& codes, std::size_t block) {
  Doubles around;
  for (std::size_t i = 0; i + 1 < codes.size(); ++i) {
    const double middle = (codes[i] + codes[i + 1]) / 2;
    for (const double x :
         {codes[i], middle, std::nextafter(middle, 0), std::nextafter(middle, most)}) {
      around.push_back(x);
      around.push_back(-x);
    }
  }
  Doubles rows;
  for (int exponent = -126; exponent < 120; exponent += exponent < -20 || exponent > 20 ? 19 : 1) {
    for (std::size_t i = 0; i < around.size();) {
      rows.push_back(std::ldexp(most, exponent));
      for (std::size_t k = 1; k < block; ++k, ++i) {
        rows.push_back(i < around.size() ? std::ldexp(around[i], exponent) : kNaN);
      }
    }
  }
  while (rows.size() % 128 != 0) rows.push_back(0);
  return rows;
}

TEST(TorchCodec, EncodesAsThePlainOne) {
  Doubles fp8, fp4;
  for (int code = 0; code < 0x7F; ++code) fp8.push_back(e4m3_value(static_cast<Byte>(code)));
  for (int code = 0; code < 8; ++code) fp4.push_back(e2m1_value(static_cast<Byte>(code)));
  const Doubles rows = around_codes(448, fp8, 128), blocks = around_codes(6, fp4, 32);
  for (const std::int32_t floor : {AS_SCALE_FLOOR_1E4, AS_SCALE_FLOOR_1E8}) {
    expect_plain(rows, AS_RECORD_INDEX_FP8, floor, AS_FP4_EVEN);
  }
  for (const std::int32_t rule : {AS_FP4_EVEN, AS_FP4_DOWN}) {
    expect_plain(blocks, AS_RECORD_INDEX_MXFP4, AS_SCALE_FLOOR_1E4, rule);
  }
}

// Scales of every bf16 maximum, and of maxima between them; with what is no number beside them.
TEST(TorchCodec, ScalesAsThePlainOne) {
  Doubles rows;
  for (int bits = 0; bits <= 0x7F80; ++bits) {
    const double most = bf16_value(static_cast<std::uint16_t>(bits));
    Doubles row(128, most / 3);
    row[5] = -most;
    if (bits % 3 == 1) row[7] = kNaN;
    if (bits % 3 == 2) row[5] = std::nextafter(most, kInf);
    if (bits % 101 == 0) row[9] = -kInf;
    rows.insert(rows.end(), row.begin(), row.end());
  }
  expect_plain(rows, AS_RECORD_INDEX_FP8, AS_SCALE_FLOOR_1E4, AS_FP4_EVEN);
  expect_plain(rows, AS_RECORD_INDEX_FP8, AS_SCALE_FLOOR_1E8, AS_FP4_EVEN);
  expect_plain(rows, AS_RECORD_INDEX_MXFP4, AS_SCALE_FLOOR_1E4, AS_FP4_EVEN);
  expect_plain(rows, AS_RECORD_INDEX_MXFP4, AS_SCALE_FLOOR_1E4, AS_FP4_DOWN);
}

// Rows of bf16 and f16 caches.
TEST(TorchCodec, RoundsToF16AsThePlainOne) {
  Doubles all;
  for (int bits = 0; bits < 65536; ++bits) {
    const double a = f16_value(static_cast<std::uint16_t>(bits));
    all.push_back(a);
    if (bits % 32768 >= 0x7C00) continue;
    const double b = f16_value(static_cast<std::uint16_t>(bits + 1));
    const double middle = std::isinf(b) ? std::copysign(65520, a) : (a + b) / 2;
    for (const double x : {middle, std::nextafter(middle, 0), std::nextafter(middle, 2 * middle)}) {
      all.push_back(x);
    }
  }
  while (all.size() % 64 != 0) all.push_back(0);
  const auto tokens = static_cast<std::int64_t>(all.size()) / 64;
  std::vector<Byte> halves(all.size() * 2), upper(all.size() * 2);
  Int64s slots;
  for (std::int64_t t = 0; t < tokens; ++t) slots.push_back(t);
  auto p = new_params<as_rope_kv_insert_params>();
  p.rows_given = 1;
  p.k_row = p.v = over(all, {tokens, 1, 64});
  p.slots = over(slots, {tokens});
  p.k_cache = logical(halves, AS_RECORD_F16, 64, 128);
  p.v_cache = logical(upper, AS_RECORD_BF16, 64, 128);
  run(sim_lane(), AS_OP_ROPE_KV_INSERT, p);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto half = static_cast<std::uint16_t>(halves[2 * i] | halves[2 * i + 1] << 8);
    const auto bf16 = static_cast<std::uint16_t>(upper[2 * i] | upper[2 * i + 1] << 8);
    ASSERT_EQ(half, f16_bits(all[i])) << all[i];
    ASSERT_EQ(bf16, bf16_bits(all[i])) << all[i];
  }
}

}  // namespace torch_codec_test
}  // namespace attnscope::reference
