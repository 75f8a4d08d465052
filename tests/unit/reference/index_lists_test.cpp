#include <algorithm>

#include "kernels/layout/records.h"
#include "tests/unit/reference/lane_test.h"

namespace attnscope::reference {
namespace index_lists_test {

// A table whose entry c is block first + c.
Int32s counting_table(std::int32_t columns, std::int32_t first) {
  Int32s table(static_cast<std::size_t>(columns));
  for (std::int32_t c = 0; c < columns; ++c) table[static_cast<std::size_t>(c)] = first + c;
  return table;
}

struct Visible {
  std::int64_t position, swa_start, swa_len, c4, c128;
};

// What a token at each position sees.
TEST(IndexLists, VisibilityTable) {
  const Visible table[] = {{0, 0, 1, 0, 0},
                           {2, 0, 3, 0, 0},
                           {3, 0, 4, 1, 0},
                           {6, 0, 7, 1, 0},
                           {7, 0, 8, 2, 0},
                           {126, 0, 127, 31, 0},
                           {127, 0, 128, 32, 1},
                           {128, 1, 128, 32, 1},
                           {131, 4, 128, 33, 1},
                           {255, 128, 128, 64, 2},
                           {1023, 896, 128, 256, 8},
                           {2050, 1923, 128, 512, 16},
                           {2051, 1924, 128, 513, 16},
                           {4099, 3972, 128, 1025, 32},
                           {65535, 65408, 128, 16384, 512},
                           {1048575, 1048448, 128, 262144, 8192}};
  for (const Visible& v : table) {
    // SWA pages of 64 rows, block c + 1 in column c: slot = position + 64.
    auto swa = new_params<as_swa_index_params>();
    Int32s blocks = counting_table(static_cast<std::int32_t>(v.position / 64 + 1), 1);
    Int32s query_start_loc = {0, 1};
    Int32s seq_lens = {static_cast<std::int32_t>(v.position + 1)};
    Int32s token_to_req = {0};
    Int32s indices(128, 7);
    Int32s lens = {-5};
    swa.tables = over(blocks, {1, 1, v.position / 64 + 1});
    swa.query_start_loc = over(query_start_loc, {2});
    swa.seq_lens = over(seq_lens, {1});
    swa.token_to_req = over(token_to_req, {1});
    swa.indices = over(indices, {1, 1, 128});
    swa.lens = over(lens, {1});
    swa.block_size = 64;
    swa.window = 128;
    run(exact_lane(), AS_OP_SWA_INDEX, swa);
    EXPECT_EQ(lens[0], v.swa_len);
    for (std::int64_t k = 0; k < 128; ++k) {
      EXPECT_EQ(indices[static_cast<std::size_t>(k)], k < v.swa_len ? v.swa_start + k + 64 : -1);
    }

    auto c128 = new_params<as_c128_index_params>();
    const std::int64_t width = as_c128_index_width(v.position + 1, 1048576);
    Int32s pages = counting_table(static_cast<std::int32_t>(v.c128 / 2 + 1), 5);
    Int64s positions = {v.position};
    Int32s entries(static_cast<std::size_t>(width), 7);
    c128.table = over(pages, {1, v.c128 / 2 + 1});
    c128.positions = over(positions, {1});
    c128.token_to_req = over(token_to_req, {1});
    c128.indices = over(entries, {1, width});
    c128.lens = over(lens, {1});
    c128.ratio = 128;
    c128.rows_per_block = 2;
    run(sim_lane(), AS_OP_C128_INDEX, c128);
    EXPECT_EQ(lens[0], v.c128);
    for (std::int64_t c = 0; c < width; ++c) {
      EXPECT_EQ(entries[static_cast<std::size_t>(c)], c < v.c128 ? c + 10 : -1);
    }

    auto mapping = new_params<as_slot_mapping_params>();
    Int32s groups = {256, 0};
    Int32s mla = counting_table(static_cast<std::int32_t>(v.position / 256 + 1), 0);
    Int64s slots(1), c4_slots(1), c128_slots(1);
    Int32s c4_lens(1);
    mapping.groups = over(groups, {1, 2});
    mapping.tables = over(mla, {1, 1, v.position / 256 + 1});
    mapping.positions = over(positions, {1});
    mapping.token_to_req = over(token_to_req, {1});
    mapping.slots = over(slots, {1, 1});
    mapping.c4_slots = over(c4_slots, {1});
    mapping.c128_slots = over(c128_slots, {1});
    mapping.c4_lens = over(c4_lens, {1});
    run(sim_lane(), AS_OP_SLOT_MAPPING, mapping);
    EXPECT_EQ(slots[0], v.position);
    EXPECT_EQ(c4_lens[0], v.c4);
    EXPECT_EQ(c4_slots[0], (v.position + 1) % 4 == 0 ? v.c4 - 1 : -1);
    EXPECT_EQ(c128_slots[0], (v.position + 1) % 128 == 0 ? v.c128 - 1 : -1);
  }
}

TEST(SwaIndex, WorkedExample) {
  auto p = new_params<as_swa_index_params>();
  Int32s blocks = {2, 7, 9, 4};
  Int32s query_start_loc = {0, 2};
  Int32s seq_lens = {201};
  Int32s token_to_req = {0, 0, -1};
  Int32s indices(3 * 128, 99);
  Int32s lens(3, 99);
  p.tables = over(blocks, {1, 1, 4});
  p.query_start_loc = over(query_start_loc, {2});
  p.seq_lens = over(seq_lens, {1});
  p.token_to_req = over(token_to_req, {3});
  p.indices = over(indices, {1, 3, 128});
  p.lens = over(lens, {3});
  p.block_size = 64;
  p.window = 128;
  run(exact_lane(), AS_OP_SWA_INDEX, p);
  EXPECT_EQ(lens, (Int32s{128, 128, 0}));
  EXPECT_EQ(indices[127], 263);  // position 199
  EXPECT_EQ(indices[128], 457);  // position 200: starts at 73, column 1, row 9
  EXPECT_EQ(indices[255], 264);  // column 3, row 8
  EXPECT_EQ(std::count(indices.begin() + 256, indices.end(), -1), 128);  // padding
}

// Token 1000 and the entries that follow from it.
TEST(SlotMapping, WorkedExample) {
  auto p = new_params<as_slot_mapping_params>();
  Int32s groups = {256, 0, 64, 128};
  Int32s tables(2 * 16, 0);
  tables[3] = 11;        // MLA, column 3
  tables[16 + 15] = 13;  // SWA, column 15
  Int64s positions = {1000, 1003, 1023, 1000};
  Int32s token_to_req = {0, 0, 0, -1};
  Int64s slots(8), c4_slots(4), c128_slots(4);
  Int32s c4_lens(4);
  p.groups = over(groups, {2, 2});
  p.tables = over(tables, {2, 1, 16});
  p.positions = over(positions, {4});
  p.token_to_req = over(token_to_req, {4});
  p.slots = over(slots, {2, 4});
  p.c4_slots = over(c4_slots, {4});
  p.c128_slots = over(c128_slots, {4});
  p.c4_lens = over(c4_lens, {4});
  run(sim_lane(), AS_OP_SLOT_MAPPING, p);
  EXPECT_EQ(slots, (Int64s{11 * 256 + 232, 11 * 256 + 235, 11 * 256 + 255, -1,  //
                           13 * 64 + 40, 13 * 64 + 43, 13 * 64 + 63, -1}));
  EXPECT_EQ(c4_slots, (Int64s{-1, 11 * 64 + 58, 11 * 64 + 63, -1}));
  EXPECT_EQ(c128_slots, (Int64s{-1, -1, 11 * 2 + 1, -1}));
  EXPECT_EQ(c4_lens, (Int32s{250, 251, 256, 0}));

  p.mla_group = -1;
  expect_refused(AS_OP_SLOT_MAPPING, p, {"slot_mapping", "c4_slots", "mla_group"});
  p.c4_slots = p.c128_slots = no_tensor();
  run(sim_lane(), AS_OP_SLOT_MAPPING, p);
}

TEST(SlotMapping, SlotsAre64Bit) {
  auto p = new_params<as_slot_mapping_params>();
  Int32s groups = {256, 0};
  Int32s tables = {2000000000};
  Int64s positions = {255};
  Int32s token_to_req = {0};
  Int64s slots(1);
  p.groups = over(groups, {1, 2});
  p.tables = over(tables, {1, 1, 1});
  p.positions = over(positions, {1});
  p.token_to_req = over(token_to_req, {1});
  p.slots = over(slots, {1, 1});
  run(sim_lane(), AS_OP_SLOT_MAPPING, p);
  EXPECT_EQ(slots[0], 512000000255);

  positions[0] = 256;
  expect_refused(AS_OP_SLOT_MAPPING, p, {"block table column 1", "token 0"});
  positions[0] = -3;
  expect_refused(AS_OP_SLOT_MAPPING, p, {"token 0", "position -3"});
}

TEST(TopkToSlots, PagedAndLogical) {
  auto p = new_params<as_topk_to_slots_params>();
  Int32s indices = {0, 63, 64, 130, -1, 5, -1, -1};
  Int32s table = {9, 3, 7, 40, 50, 60};
  Int32s token_to_req = {0, -1};
  Int32s slots(8), lens(2);
  p.indices = over(indices, {2, 4});
  p.table = over(table, {2, 3});
  p.token_to_req = over(token_to_req, {2});
  p.slots = over(slots, {2, 4});
  p.lens = over(lens, {2});
  p.rows_per_block = 64;
  run(exact_lane(), AS_OP_TOPK_TO_SLOTS, p);
  EXPECT_EQ(slots, (Int32s{576, 639, 192, 450, -1, -1, -1, -1}));
  EXPECT_EQ(lens, (Int32s{4, 0}));

  p.rows_per_block = 0;
  token_to_req[1] = 1;
  run(exact_lane(), AS_OP_TOPK_TO_SLOTS, p);
  EXPECT_EQ(slots, (Int32s{9, 72, 73, 139, -1, 45, -1, -1}));
  EXPECT_EQ(lens, (Int32s{4, 1}));
}

TEST(C128Index, RefusesARowThatIsTooNarrow) {
  auto p = new_params<as_c128_index_params>();
  Int32s table(8, 1);
  Int64s positions = {511};
  Int32s token_to_req = {0};
  Int32s indices(3), lens(1);
  p.table = over(table, {1, 8});
  p.positions = over(positions, {1});
  p.token_to_req = over(token_to_req, {1});
  p.indices = over(indices, {1, 3});
  p.lens = over(lens, {1});
  p.ratio = 128;
  p.rows_per_block = 2;
  expect_refused(AS_OP_C128_INDEX, p, {"sees 4 entries", "3 columns"});
}

}  // namespace index_lists_test
}  // namespace attnscope::reference
