// Cache rows byte by byte: fields, decoded elements, statistics, pages.
#include "app/views/bytes_view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/codec.h"
#include "kernels/layout/records.h"
#include "tests/unit/app/trace_builder.h"

namespace attnscope {
namespace bytes_view_test {

// A row of a record made by the kernels' own quantiser.
struct Quantised {
  std::int32_t record;
  int width;
  std::vector<std::uint8_t> bytes;
  RecordBytes view() const { return {record, width, bytes}; }
};

Quantised quantise(std::int32_t record, int width, const std::vector<float>& values) {
  Quantised row{record, width, {}};
  row.bytes.resize(static_cast<std::size_t>(as_row_bytes(record, width)));
  cpu::quantise_row(record, width, values.data(), row.bytes.data(),
                    row.bytes.data() + as_payload_bytes(record, width));
  return row;
}

std::vector<float> wave(int width) {
  std::vector<float> values;
  for (int i = 0; i < width; ++i) {
    values.push_back(
        cpu::round_bf16(std::sin(0.37f * static_cast<float>(i)) * static_cast<float>(1 + i % 7)));
  }
  return values;
}

TEST(BytesView, EveryElementOfEveryRecordDecodesToTheKernelsValue) {
  const std::pair<std::int32_t, int> records[] = {{AS_RECORD_LATENT, AS_HEAD_DIM},
                                                  {AS_RECORD_INDEX_FP8, AS_INDEX_DIM},
                                                  {AS_RECORD_INDEX_MXFP4, AS_INDEX_DIM},
                                                  {AS_RECORD_STATE, 1024}};
  for (const auto& [record, width] : records) {
    const Quantised row = quantise(record, width, wave(width));
    std::vector<float> decoded(static_cast<std::size_t>(width));
    cpu::decode_row(record, width, row.bytes.data(),
                    row.bytes.data() + as_payload_bytes(record, width), decoded.data());
    for (int d = 0; d < width; ++d) {
      const DecodedElement e = decode_element(row.view(), d);
      EXPECT_EQ(e.value, decoded[static_cast<std::size_t>(d)]) << record_name(record) << " " << d;
      EXPECT_EQ(e.value, e.code_value * e.scale);
      EXPECT_EQ(e.scale, e.scaled ? std::ldexp(1.0, e.scale_exponent) : 1);
    }
  }
}

TEST(BytesView, EveryByteNamesTheElementsWhoseBytesItHolds) {
  const std::pair<std::int32_t, int> records[] = {{AS_RECORD_LATENT, AS_HEAD_DIM},
                                                  {AS_RECORD_INDEX_FP8, AS_INDEX_DIM},
                                                  {AS_RECORD_INDEX_MXFP4, AS_INDEX_DIM},
                                                  {AS_RECORD_STATE, 64}};
  for (const auto& [record, width] : records) {
    const std::int64_t bytes = as_row_bytes(record, width);
    std::vector<int> covered(static_cast<std::size_t>(width), 0);
    for (std::int64_t b = 0; b < bytes; ++b) {
      const ByteField field = field_of_byte(record, width, b);
      EXPECT_LE(field.first, b);
      EXPECT_GT(field.first + field.length, b);
      if (b != field.first || field.dim < 0) continue;
      const bool scale = b >= as_payload_bytes(record, width);
      for (std::int64_t d = field.dim; d < field.dim + field.dims; ++d) {
        const ElementBytes e = bytes_of_dim(record, width, d);
        EXPECT_EQ(scale ? e.scale : e.payload, b) << record_name(record) << " dim " << d;
        if (!scale) ++covered[static_cast<std::size_t>(d)];
      }
    }
    for (const int n : covered) EXPECT_EQ(n, 1);
  }
  EXPECT_EQ(field_of_byte(AS_RECORD_LATENT, AS_HEAD_DIM, 583).kind, AS_FIELD_PADDING);
  EXPECT_EQ(field_of_byte(AS_RECORD_LATENT, AS_HEAD_DIM, 449).dim, 448);
  EXPECT_EQ(field_of_byte(AS_RECORD_LATENT, AS_HEAD_DIM, 577).dim, 64);
}

TEST(BytesView, WordsOfAnElementAndOfAField) {
  Quantised row{AS_RECORD_LATENT, AS_HEAD_DIM, std::vector<std::uint8_t>(584, 0)};
  row.bytes[17] = 0x3a;   // 1.25
  row.bytes[576] = 0x76;  // 2^-9
  EXPECT_EQ(element_words(decode_element(row.view(), 17)),
            "0x3a = 1.25 (e4m3) \xc3\x97 2^-9 (UE8M0 0x76) = 0.00244140625");
  EXPECT_EQ(field_words(row.view(), 576), "byte 576: UE8M0 0x76 = 2^-9, scales dims 0-63");
  EXPECT_EQ(field_words(row.view(), 583), "byte 583: padding, 0x00");
  row.bytes[17] = 0xfe;
  EXPECT_TRUE(decode_element(row.view(), 17).saturated);
  EXPECT_EQ(decode_element(row.view(), 17).code_value, -448);
}

TEST(BytesView, CountsSaturationZerosAndUnderflow) {
  std::vector<float> values(AS_HEAD_DIM, 1.0f);
  values[3] = 448;    // the block's scale becomes 1, code 448
  values[5] = 1e-5f;  // too small for that scale: code 0
  values[7] = 0;      // was 0 before
  const Quantised row = quantise(AS_RECORD_LATENT, AS_HEAD_DIM, values);
  const std::vector<double> before(values.begin(), values.end());
  const RecordStats stats = record_stats(row.view(), row.bytes, before);
  EXPECT_FALSE(stats.poisoned);
  // A block of ones alone has scale 2^-8, where 1 is the code 256: not saturated.
  EXPECT_EQ(stats.saturated, 1);
  EXPECT_EQ(stats.zeros, 2);
  EXPECT_EQ(stats.underflow, 1);
  EXPECT_EQ(stats.differing, 0);
  EXPECT_EQ(stats.scales, 7);
  EXPECT_EQ(stats.lowest_scale, -8);
  EXPECT_EQ(stats.highest_scale, 0);
  EXPECT_EQ(record_stats(row.view(), {}, {}).underflow, -1);
  EXPECT_EQ(record_stats(row.view(), {}, {}).differing, -1);

  const std::vector<ScaleGroup> groups = scale_groups(row.view());
  ASSERT_EQ(groups.size(), 7u);
  EXPECT_EQ(groups[0].largest, 448);
  EXPECT_EQ(groups[0].saturated, 1);
  EXPECT_EQ(groups[6].byte, 582);
  EXPECT_EQ(groups[6].first_dim, 384);
}

TEST(BytesView, SaysWhichBytesDifferAndWhatWasNeverWritten) {
  const Quantised row = quantise(AS_RECORD_INDEX_FP8, AS_INDEX_DIM, wave(AS_INDEX_DIM));
  std::vector<std::uint8_t> reference = row.bytes;
  reference[9] ^= 1;
  reference[40] ^= 8;
  const RecordStats stats = record_stats(row.view(), reference, {});
  EXPECT_EQ(stats.differing, 2);
  EXPECT_EQ(stats.first_difference, 9);
  EXPECT_NE(bytes_sentence(row.view(), stats, "Row of token 7")
                .find("2 of 132 bytes differ from ref.sim's, the first is byte 9."),
            std::string::npos);

  const Quantised poison{AS_RECORD_LATENT, AS_HEAD_DIM, std::vector<std::uint8_t>(584, 0xFF)};
  const RecordStats none = record_stats(poison.view(), {}, {});
  EXPECT_TRUE(none.poisoned);
  EXPECT_EQ(bytes_sentence(poison.view(), none, "Block 41, row 3"),
            "Block 41, row 3, latent row of 584 B: never written; every byte is 0xFF.");
}

TEST(BytesView, GathersARowOfAPlanarPage) {
  CacheSpec spec;
  spec.record = AS_RECORD_LATENT;
  spec.width = AS_HEAD_DIM;
  spec.rows_per_block = 64;
  spec.offset = 1000;
  std::vector<std::uint8_t> block(
      static_cast<std::size_t>(1000 + as_page_bytes(spec.record, spec.width, 64)));
  block[static_cast<std::size_t>(1000 + 5 * 576)] = 0xAB;               // row 5's first byte
  block[static_cast<std::size_t>(1000 + 64 * 576 + 5 * 8 + 2)] = 0x7F;  // its third scale
  const std::vector<std::uint8_t> row = row_of_page(spec, block, 5);
  ASSERT_EQ(row.size(), 584u);
  EXPECT_EQ(row[0], 0xAB);
  EXPECT_EQ(row[576 + 2], 0x7F);
  EXPECT_TRUE(row_of_page(spec, block, 64).empty());
  block.resize(2000);
  EXPECT_TRUE(row_of_page(spec, block, 5).empty());
}

// Formats that no op of DeepSeek-V4 has: two heads of 4 in int8, and V3.2's latent row.
TEST(BytesView, ReadsRowsOfOtherFormats) {
  const auto put = [](std::vector<std::uint8_t>& row, std::size_t at, float value) {
    std::memcpy(row.data() + at, &value, sizeof(value));
  };
  std::vector<std::uint8_t> row(8 + 2 * 8, 0);
  row[6] = 100;  // head 1, element 2
  row[7] = 0x80;
  put(row, 16, 0.3f);  // its scale
  put(row, 20, 4);     // and zero point
  const RecordBytes int8{AS_RECORD_INT8_TOKEN_HEAD, 8, row, 2};
  const DecodedElement e = decode_element(int8, 6);
  EXPECT_EQ(e.code_kind, AS_CODE_I8);
  EXPECT_DOUBLE_EQ(e.value, (100 - 4) * static_cast<double>(0.3f));
  EXPECT_TRUE(decode_element(int8, 7).saturated);
  EXPECT_DOUBLE_EQ(decode_element(int8, 7).code_value, -128);
  EXPECT_EQ(field_words(int8, 21), "bytes 20-23: zero point 4, for dims 4-7");
  EXPECT_EQ(field_name(field_of_byte(int8.record, 8, 18, 2)), "f32 scale");
  EXPECT_EQ(scale_groups(int8).size(), 2u);
  EXPECT_NE(element_words(e).find("= 100 (i8) - 4 (zero point)) \xc3\x97 0.3"), std::string::npos)
      << element_words(e);
  EXPECT_TRUE(decode_element(int8, 0).zero);
  EXPECT_FALSE(decode_element(int8, 5).zero);  // code 0, and 0 - 4
  put(row, 16, 0.5f);
  put(row, 20, 0);
  EXPECT_EQ(element_words(decode_element(int8, 6)),
            "0x64 = 100 (i8) \xc3\x97 2^-1 (f32 scale) = 50");

  std::vector<std::uint8_t> latent(656, 0);
  latent[200] = 0x38;              // 1.0
  put(latent, 512 + 4, 0.25f);     // second scale
  latent[528 + 2 * 3 + 1] = 0x40;  // 2.0 in bf16
  const RecordBytes v32{AS_RECORD_LATENT_656, 576, latent, 1};
  EXPECT_DOUBLE_EQ(decode_element(v32, 200).value, 0.25);
  EXPECT_DOUBLE_EQ(decode_element(v32, 515).value, 2);
  EXPECT_EQ(scale_groups(v32).size(), 4u);
  EXPECT_EQ(scale_groups(v32)[3].first_dim, 384);
}

// Scales beside a cache, one a head: those that the op was given, or nobody knows the value.
TEST(BytesView, ReadsCodesByScalesBesideTheCache) {
  std::vector<std::uint8_t> row(8, 0);
  row[1] = 0x38;  // 1.0 of e4m3
  row[6] = 0x40;  // 2.0
  const std::vector<float> scales = {0.5f, 0.75f};
  const RecordBytes known{AS_RECORD_FP8_HEAD, 8, row, 2, scales};
  EXPECT_DOUBLE_EQ(decode_element(known, 1).value, 0.5);
  EXPECT_DOUBLE_EQ(decode_element(known, 6).value, 1.5);
  EXPECT_EQ(element_words(decode_element(known, 6)),
            "0x40 = 2 (e4m3) \xc3\x97 0.75 (scale beside the cache) = 1.5");
  const RecordBytes unknown{AS_RECORD_FP8_HEAD, 8, row, 2};
  EXPECT_TRUE(std::isnan(decode_element(unknown, 6).value));
  EXPECT_NE(element_words(decode_element(unknown, 6)).find("which is not kept"), std::string::npos);
  const RecordBytes e5m2{AS_RECORD_E5M2_TENSOR, 8, row, 2, scales};
  EXPECT_DOUBLE_EQ(decode_element(e5m2, 6).value, 2 * 0.5);
  EXPECT_DOUBLE_EQ(decode_element(e5m2, 1).value, 0.5 * 0.5);

  StepTrace step = make_step(4, 40, 3);
  OpTrace& op = add_op(step, 2, AS_OP_ROPE_KV_INSERT);
  add_tap(op, "v_scale", std::vector<float>{0.25f, 4}, 1);
  as_tensor& scale = op.taps.back().value;  // of one axis
  scale = make_tensor(static_cast<float*>(scale.data), {2});
  EXPECT_EQ(scales_beside_cache(step, 2, "v_cache"), (std::vector<float>{0.25f, 4}));
  EXPECT_TRUE(scales_beside_cache(step, 2, "k_cache").empty());
  EXPECT_TRUE(scales_beside_cache(step, 1, "v_cache").empty());
}

TEST(BytesView, ValuesBeforeQuantisationAreThoseOfTheSameToken) {
  StepTrace step = make_step(4, 40, 3);
  step.kept = {1, 2};
  OpTrace& op = add_op(step, 2, AS_OP_COMPRESS_INSERT);
  add_tap(op, "row", std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, 2);
  RowsCopy rows;
  rows.width = 4;
  rows.tokens = {2};
  EXPECT_EQ(values_before(step, op, rows, 0), (std::vector<double>{5, 6, 7, 8}));
  add_reference(op, std::vector<double>{0, 0, 0, 0, 9, 9, 9, 9}, 2);
  EXPECT_EQ(values_before(step, op, rows, 0), (std::vector<double>{9, 9, 9, 9}));
  rows.tokens = {0};  // not kept
  EXPECT_TRUE(values_before(step, op, rows, 0).empty());
  rows.width = 8;
  EXPECT_TRUE(values_before(step, op, rows, 0).empty());
}

TEST(BytesView, SlotsInWords) {
  EXPECT_EQ(slot_text(2 * 64 + 7, 64), "slot 135: block 2, row 7");
  EXPECT_EQ(slot_text(-1, 64), "no slot");
}

}  // namespace bytes_view_test
}  // namespace attnscope
