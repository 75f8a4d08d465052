// Worked numbers of every row format: bytes of rows and pages, where element e of head h of row i
// lies, and its scale; the inverse; rows copied out of pages and back; constants of kernels.
#include "kernels/params/row_format.h"

#include <set>
#include <string>
#include <vector>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace row_format_test {

struct Bytes {
  std::int64_t payload, scales, row, used, page;
};
Bytes bytes_of(std::int32_t record, std::int64_t width, std::int64_t heads, std::int64_t rows) {
  const as_row_layout l = as_row_layout_of(record, width, heads, rows);
  return {l.payload, l.scales, l.row, l.page_used, l.page};
}
void expect(const Bytes& is, const Bytes& must) {
  EXPECT_EQ(is.payload, must.payload);
  EXPECT_EQ(is.scales, must.scales);
  EXPECT_EQ(is.row, must.row);
  EXPECT_EQ(is.used, must.used);
  EXPECT_EQ(is.page, must.page);
}

TEST(RowFormat, BytesOfV4) {
  expect(bytes_of(AS_RECORD_LATENT, 512, 1, 64), {576, 8, 584, 37376, 37440});
  expect(bytes_of(AS_RECORD_LATENT, 512, 1, 2), {576, 8, 584, 1168, 1728});
  expect(bytes_of(AS_RECORD_INDEX_FP8, 128, 1, 64), {128, 4, 132, 8448, 8640});
  expect(bytes_of(AS_RECORD_INDEX_MXFP4, 128, 1, 64), {64, 4, 68, 4352, 4608});
  expect(bytes_of(AS_RECORD_STATE, 2048, 1, 4), {8192, 0, 8192, 32768, 32832});
}

// A model of 8 KV heads of 128 in blocks of 16 tokens, K alone.
TEST(RowFormat, BytesOfManyHeads) {
  expect(bytes_of(AS_RECORD_BF16, 1024, 8, 16), {2048, 0, 2048, 32768, 32768});
  expect(bytes_of(AS_RECORD_F16, 1024, 8, 16), {2048, 0, 2048, 32768, 32768});
  expect(bytes_of(AS_RECORD_FP8_TENSOR, 1024, 8, 16), {1024, 0, 1024, 16384, 16384});
  expect(bytes_of(AS_RECORD_FP8_HEAD, 1024, 8, 16), {1024, 0, 1024, 16384, 16384});
  expect(bytes_of(AS_RECORD_FP8_TOKEN, 1024, 8, 16), {1024, 4, 1028, 16448, 16448});
  // 128 codes and 8 bytes a head: 256 / 136 = 1.88 times smaller than bf16.
  expect(bytes_of(AS_RECORD_INT8_TOKEN_HEAD, 1024, 8, 16), {1024, 64, 1088, 17408, 17408});
  // 132 bytes a head, 1.94 times smaller.
  for (const std::int32_t record : {AS_RECORD_FP8_TOKEN_HEAD, AS_RECORD_E5M2_TOKEN_HEAD}) {
    expect(bytes_of(record, 1024, 8, 16), {1024, 32, 1056, 16896, 16896});
  }
  for (const std::int32_t record : {AS_RECORD_E5M2_TENSOR, AS_RECORD_E5M2_HEAD}) {
    expect(bytes_of(record, 1024, 8, 16), {1024, 0, 1024, 16384, 16384});
  }
  expect(bytes_of(AS_RECORD_LATENT_656, 576, 1, 64), {640, 16, 656, 41984, 41984});
  // The order of heads and rows changes no size.
  for (std::int32_t record = AS_RECORD_BF16; record <= AS_RECORD_INT8_TOKEN_HEAD; ++record) {
    expect(bytes_of(record | AS_RECORD_HND, 1024, 8, 16), bytes_of(record, 1024, 8, 16));
  }
}

TEST(RowFormat, NothingOfWhatIsNotThere) {
  for (const auto& l :
       {as_row_layout_of(AS_RECORD_NONE, 512, 1, 64), as_row_layout_of(4711, 512, 1, 64),
        as_row_layout_of(-1, 512, 1, 64), as_row_layout_of(AS_RECORD_LATENT, 128, 1, 64),
        as_row_layout_of(AS_RECORD_LATENT | AS_RECORD_HND, 512, 1, 64),
        as_row_layout_of(AS_RECORD_BF16, 100, 8, 16),
        as_row_layout_of(AS_RECORD_BF16, 1024, 0, 16)}) {
    EXPECT_EQ(l.format, nullptr);
    EXPECT_EQ(l.row, 0);
    EXPECT_EQ(l.page, 0);
    EXPECT_EQ(as_element_at(&l, 0, 0, 0).code, AS_CODE_NONE);
  }
  const as_row_layout l = as_row_layout_of(AS_RECORD_BF16, 1024, 8, 16);
  EXPECT_EQ(as_element_at(&l, 16, 0, 0).at, -1);
  EXPECT_EQ(as_element_at(&l, 0, 8, 0).at, -1);
  EXPECT_EQ(as_element_at(&l, 0, 0, 128).at, -1);
}

struct Worked {
  std::int32_t record;
  std::int64_t width, heads, rows;      // the page
  std::int64_t row, head, element;      // what is looked for
  std::int64_t at, scale, zero, index;  // where it lies
  std::int64_t first, shared;           // elements with this scale
  std::int32_t shift = 0;
};

TEST(RowFormat, PlacesWorkedOut) {
  const Worked worked[] = {
      // Token 1000 in its SWA page (row 40), dim 100: second scale; and a dim with RoPE.
      {AS_RECORD_LATENT, 512, 1, 64, 40, 0, 100, 23040 + 100, 37184 + 1, -1, -1, 64, 64},
      {AS_RECORD_LATENT, 512, 1, 64, 40, 0, 450, 23040 + 448 + 4, -1, -1, -1, 0, 0},
      // Its C128A entry 7, row 1 of 2.
      {AS_RECORD_LATENT, 512, 1, 2, 1, 0, 447, 576 + 447, 1160 + 6, -1, -1, 384, 64},
      {AS_RECORD_INDEX_FP8, 128, 1, 64, 58, 0, 127, 58 * 128 + 127, 8192 + 58 * 4, -1, -1, 0, 128},
      {AS_RECORD_INDEX_MXFP4, 128, 1, 64, 58, 0, 33, 58 * 64 + 16, 4096 + 58 * 4 + 1, -1, -1, 32,
       32, 4},
      {AS_RECORD_STATE, 2048, 1, 4, 3, 0, 2047, 3 * 8192 + 8188, -1, -1, -1, 0, 0},
      // 8 heads of 128, 16 rows: row 5, head 3, element 7.
      {AS_RECORD_BF16, 1024, 8, 16, 5, 3, 7, (5 * 8 + 3) * 256 + 14, -1, -1, -1, 0, 0},
      {AS_RECORD_BF16 | AS_RECORD_HND, 1024, 8, 16, 5, 3, 7, (3 * 16 + 5) * 256 + 14, -1, -1, -1, 0,
       0},
      {AS_RECORD_F16, 1024, 8, 16, 5, 3, 7, 11022, -1, -1, -1, 0, 0},
      {AS_RECORD_FP8_TENSOR, 1024, 8, 16, 5, 3, 7, 5511, -1, -1, 0, 0, 128},
      {AS_RECORD_FP8_HEAD, 1024, 8, 16, 5, 3, 7, 5511, -1, -1, 3, 0, 128},
      {AS_RECORD_FP8_HEAD | AS_RECORD_HND, 1024, 8, 16, 5, 3, 7, 6791, -1, -1, 3, 0, 128},
      {AS_RECORD_FP8_TOKEN, 1024, 8, 16, 5, 3, 7, 5511, 16384 + 5 * 4, -1, -1, 0, 128},
      {AS_RECORD_FP8_TOKEN | AS_RECORD_HND, 1024, 8, 16, 5, 3, 7, 6791, 16384 + 5 * 4, -1, -1, 0,
       128},
      {AS_RECORD_INT8_TOKEN_HEAD, 1024, 8, 16, 5, 3, 7, 5511, 16384 + 43 * 8, 16384 + 43 * 8 + 4,
       -1, 0, 128},
      {AS_RECORD_INT8_TOKEN_HEAD | AS_RECORD_HND, 1024, 8, 16, 5, 3, 7, 6791, 16384 + 53 * 8,
       16384 + 53 * 8 + 4, -1, 0, 128},
      {AS_RECORD_FP8_TOKEN_HEAD, 1024, 8, 16, 5, 3, 7, 5511, 16384 + 43 * 4, -1, -1, 0, 128},
      {AS_RECORD_E5M2_TOKEN_HEAD | AS_RECORD_HND, 1024, 8, 16, 5, 3, 7, 6791, 16384 + 53 * 4, -1,
       -1, 0, 128},
      {AS_RECORD_E5M2_TENSOR, 1024, 8, 16, 5, 3, 7, 5511, -1, -1, 0, 0, 128},
      {AS_RECORD_E5M2_HEAD | AS_RECORD_HND, 1024, 8, 16, 5, 3, 7, 6791, -1, -1, 3, 0, 128},
      // V3.2: 512 codes, 4 scales, 64 bf16, row after row.
      {AS_RECORD_LATENT_656, 576, 1, 64, 10, 0, 300, 6560 + 300, 6560 + 512 + 8, -1, -1, 256, 128},
      {AS_RECORD_LATENT_656, 576, 1, 64, 10, 0, 575, 6560 + 528 + 126, -1, -1, -1, 0, 0},
  };
  for (const Worked& w : worked) {
    SCOPED_TRACE(as_row_format_of(w.record)->name + std::string(" ") + std::to_string(w.element));
    const as_row_layout l = as_row_layout_of(w.record, w.width, w.heads, w.rows);
    const as_element_place e = as_element_at(&l, w.row, w.head, w.element);
    EXPECT_EQ(e.at, w.at);
    EXPECT_EQ(e.shift, w.shift);
    EXPECT_EQ(e.scale, w.scale);
    EXPECT_EQ(e.zero, w.zero);
    EXPECT_EQ(e.scale_index, w.index);
    EXPECT_EQ(e.first, w.first);
    EXPECT_EQ(e.shared, w.shared);
  }
}

// A width and heads that each format has.
struct Sample {
  const as_row_format* format;
  std::int64_t width, heads;
};
std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (std::int32_t i = 0; const as_row_format* f = as_row_format_at(i); ++i) {
    const std::int64_t width = as_row_width(f->record);
    const bool many = f->placement == AS_NHD || f->placement == AS_HND;
    all.push_back({f, width > 0 ? width : many ? 3 * 32 : 128, many ? 3 : 1});
  }
  return all;
}

// No two elements or scales share a bit, nothing lies outside, and every byte of a row knows what
// it is of.
TEST(RowFormat, EveryByteOfAPageHasOneOwner) {
  for (const Sample& s : samples()) {
    SCOPED_TRACE(s.format->name);
    for (const std::int64_t rows : {1, 5}) {
      const as_row_layout l = as_row_layout_of(s.format->record, s.width, s.heads, rows);
      std::vector<int> bits(static_cast<std::size_t>(l.page_used), 0);  // taken
      std::set<std::int64_t> scales;
      const auto take = [&](std::int64_t at, std::int64_t n, std::int32_t shift) {
        for (; n > 0; n -= 8) {
          ASSERT_LT(at, l.page_used);
          const int mask = n < 8 ? 0xf << shift : 0xff;
          EXPECT_EQ(bits[static_cast<std::size_t>(at)] & mask, 0) << at;
          bits[static_cast<std::size_t>(at++)] |= mask;
        }
      };
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t head = 0; head < s.heads; ++head) {
          for (std::int64_t e = 0; e < l.width; ++e) {
            const as_element_place p = as_element_at(&l, row, head, e);
            const as_row_part& part = s.format->parts[p.part];
            take(p.at, as_code_bits(p.code), p.shift);
            if (p.scale >= 0 && scales.insert(p.scale).second) {
              take(p.scale, as_code_bits(part.scale), 0);
              if (p.zero >= 0) take(p.zero, as_code_bits(part.zero), 0);
            }
            if (rows > 1) continue;
            const as_row_field f = as_field_at(&l, p.at);
            EXPECT_EQ(f.kind, AS_FIELD_ELEMENT);
            EXPECT_EQ(f.at, p.at);
            EXPECT_EQ(f.head, head);
            EXPECT_LE(f.first, e);
            EXPECT_GT(f.first + f.count, e);
            if (p.scale < 0) continue;
            const as_row_field scale = as_field_at(&l, p.scale);
            EXPECT_EQ(scale.kind, AS_FIELD_SCALE);
            EXPECT_EQ(scale.at, p.scale);
            EXPECT_EQ(scale.bytes * 8, as_code_bits(part.scale));
            EXPECT_EQ(scale.first, p.first);
            EXPECT_EQ(scale.count, p.shared);
            if (p.zero < 0) continue;
            EXPECT_EQ(as_field_at(&l, p.zero + 3).at, p.zero);
            EXPECT_EQ(as_field_at(&l, p.zero).kind, AS_FIELD_ZERO);
          }
        }
      }
      std::int64_t left = 0;
      for (std::size_t i = 0; i < bits.size(); ++i) {
        left += bits[i] == 0 ? 1 : 0;
        EXPECT_TRUE(bits[i] == 0 || bits[i] == 0xff) << i;
        if (rows == 1 && bits[i] == 0) {
          EXPECT_EQ(as_field_at(&l, static_cast<std::int64_t>(i)).kind, AS_FIELD_PADDING);
        }
      }
      EXPECT_EQ(left, s.format->record == AS_RECORD_LATENT ? rows : 0) << "the pad byte of a row";
    }
  }
}

// Each element is found in the logical form where the page of one row has it.
TEST(RowFormat, RowsComeOutOfPagesAndGoBack) {
  for (const Sample& s : samples()) {
    SCOPED_TRACE(s.format->name);
    constexpr std::int64_t kRows = 5, kBlocks = 3, kSlot = 2 * kRows + 3;
    const as_row_layout l = as_row_layout_of(s.format->record, s.width, s.heads, kRows);
    const as_row_layout one = as_row_layout_of(s.format->record, s.width, s.heads, 1);
    std::vector<std::uint8_t> pages(static_cast<std::size_t>(kBlocks * (l.page + 16)));
    for (std::size_t i = 0; i < pages.size(); ++i) {
      pages[i] = static_cast<std::uint8_t>(i * 31 + (i >> 8));
    }
    as_cache c{};
    c.data = make_tensor(pages.data(), {kBlocks, l.page + 16});
    c.data.reserved = static_cast<std::int32_t>(s.heads);
    c.record = s.format->record;
    c.addressing = AS_PAGED;
    c.rows_per_block = kRows;
    c.width = static_cast<std::int32_t>(s.width);
    std::vector<std::uint8_t> row(static_cast<std::size_t>(l.row));
    as_row_get(&c, kSlot, row.data());
    EXPECT_TRUE(as_row_equals(&c, kSlot, row.data()));
    for (std::int64_t head = 0; head < s.heads; ++head) {
      for (std::int64_t e = 0; e < l.width; ++e) {
        const as_element_place in = as_element_at(&l, 3, head, e);
        const as_element_place out = as_element_at(&one, 0, head, e);
        const std::int64_t page = 2 * (l.page + 16);
        EXPECT_EQ(pages[static_cast<std::size_t>(page + in.at)],
                  row[static_cast<std::size_t>(out.at)]);
        if (in.scale < 0) continue;
        EXPECT_EQ(pages[static_cast<std::size_t>(page + in.scale)],
                  row[static_cast<std::size_t>(out.scale)]);
      }
    }
    // Into another slot, and into a cache without pages.
    const std::vector<std::uint8_t> before = pages;
    as_row_put(&c, 1, row.data());
    EXPECT_TRUE(as_row_equals(&c, 1, row.data()));
    std::int64_t changed = 0;
    for (std::size_t i = 0; i < pages.size(); ++i) changed += pages[i] != before[i] ? 1 : 0;
    EXPECT_LE(changed, l.row);
    as_cache logical = c;
    std::vector<std::uint8_t> memory(static_cast<std::size_t>(2 * l.row), 0);
    logical.addressing = AS_LOGICAL;
    logical.rows_per_block = 0;
    logical.data = make_tensor(memory.data(), {2, l.row});
    logical.data.reserved = c.data.reserved;
    as_row_copy(&c, kSlot, &logical, 1);
    EXPECT_EQ(std::vector<std::uint8_t>(memory.begin() + l.row, memory.end()), row);
    as_row_copy(&logical, 1, &c, 7);
    EXPECT_TRUE(as_row_equals(&c, 7, row.data()));
    memory[static_cast<std::size_t>(2 * l.row - 1)] ^= 1;
    EXPECT_FALSE(as_row_equals(&c, kSlot, memory.data() + l.row));
  }
}

TEST(RowFormat, NamesAndNumbersAreEachOnes) {
  std::set<std::string> names;
  std::set<std::int32_t> records;
  for (const Sample& s : samples()) {
    EXPECT_TRUE(names.insert(s.format->name).second) << s.format->name;
    EXPECT_TRUE(records.insert(s.format->record).second) << s.format->name;
    EXPECT_EQ(as_row_format_of(s.format->record), s.format);
    EXPECT_EQ(as_row_format_by_name(s.format->name), s.format);
  }
  EXPECT_EQ(names.size(), 25u);
  EXPECT_EQ(as_row_format_by_name("none"), nullptr);
  EXPECT_TRUE(as_row_is_values(AS_RECORD_STATE));
  EXPECT_FALSE(as_row_is_values(AS_RECORD_BF16));
  EXPECT_FALSE(as_row_is_values(AS_RECORD_NONE));
}

// What kernels and references have compiled in.
TEST(RowFormat, ConstantsOfKernelsAreThoseOfTheFormats) {
  const struct {
    std::int32_t record;
    std::int64_t width;
  } of_v4[] = {{AS_RECORD_LATENT, AS_HEAD_DIM},
               {AS_RECORD_INDEX_FP8, AS_INDEX_DIM},
               {AS_RECORD_INDEX_MXFP4, AS_INDEX_DIM},
               {AS_RECORD_STATE, 2048},
               {AS_RECORD_STATE, 256}};
  for (const auto& [record, width] : of_v4) {
    for (const std::int64_t rows : {1, 2, 4, 8, 64}) {
      const as_row_layout l = as_row_layout_of(record, width, 1, rows);
      EXPECT_EQ(l.payload, as_payload_bytes(record, width));
      EXPECT_EQ(l.scales, as_scale_bytes(record));
      EXPECT_EQ(l.row, as_row_bytes(record, width));
      EXPECT_EQ(l.page_used, as_page_bytes_raw(record, width, rows));
      EXPECT_EQ(l.page, as_page_bytes(record, width, rows));
      const as_element_place e = as_element_at(&l, rows - 1, 0, 0);
      EXPECT_EQ(e.at, as_payload_offset(record, width, rows - 1));
      if (e.scale >= 0) {
        EXPECT_EQ(e.scale, as_scale_offset(record, width, rows, rows - 1));
      }
      EXPECT_EQ(l.format->alignment, AS_PAGE_ALIGNMENT);
    }
  }
  const as_row_format& latent = *as_row_format_of(AS_RECORD_LATENT);
  EXPECT_EQ(latent.parts[0].count, AS_NOPE_DIM);
  EXPECT_EQ(latent.parts[0].block, AS_QUANT_BLOCK);
  EXPECT_EQ(as_part_scales(&latent.parts[0], AS_NOPE_DIM), AS_QUANT_BLOCKS);
  EXPECT_EQ(latent.parts[1].count, AS_ROPE_DIM);
  EXPECT_EQ(as_row_format_of(AS_RECORD_INDEX_MXFP4)->parts[0].block, AS_MXFP4_BLOCK);
}

}  // namespace row_format_test
}  // namespace attnscope::kernel_tests
