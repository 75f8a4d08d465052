// slot_mapping, swa_index, c128_index, topk_to_slots: worked examples and the visibility table.
#include <numeric>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace index_ops_test {

struct Visible {
  std::int64_t t, swa_start;
  std::int32_t swa_len, c4, c128;
};
const Visible kVisible[] = {{0, 0, 1, 0, 0},
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

// A table row that maps column c to block c + 1.
std::vector<std::int32_t> identity_table(std::int64_t columns) {
  std::vector<std::int32_t> table(static_cast<std::size_t>(columns));
  std::iota(table.begin(), table.end(), 1);
  return table;
}

TEST(SwaIndex, WorkedExample) {
  // A request of 201 tokens whose last is the step's only one: position 200.
  Array<std::int32_t> tables({1, 1, 4}, {3, 7, 9, 4});
  Array<std::int32_t> query_start_loc({2}, {0, 1}), seq_lens({1}, {201}), token_to_req({1}, {0});
  Array<std::int32_t> indices({1, 1, 128}, 99), lens({1}, 99);
  auto p = make_params<as_swa_index_params>();
  p.tables = tables.tensor;
  p.query_start_loc = query_start_loc.tensor;
  p.seq_lens = seq_lens.tensor;
  p.token_to_req = token_to_req.tensor;
  p.indices = indices.tensor;
  p.lens = lens.tensor;
  p.block_size = 64;
  p.window = 128;
  EXPECT_OK(run(AS_OP_SWA_INDEX, p));
  EXPECT_EQ(lens[0], 128);
  EXPECT_EQ(indices[0], 457);      // position 73, column 1, row 9
  EXPECT_EQ(indices[55], 9 * 64);  // position 128
  EXPECT_EQ(indices[127], 264);    // position 200, column 3, row 8
}

TEST(SwaIndex, VisibilityTableAndPadding) {
  for (const Visible& v : kVisible) {
    const std::int64_t columns = v.t / 64 + 1;
    // Two groups; the first token is padding.
    std::vector<std::int32_t> both = identity_table(columns);
    for (std::int64_t c = 0; c < columns; ++c) both.push_back(static_cast<std::int32_t>(2 * c + 5));
    Array<std::int32_t> tables({2, 1, columns}, both);
    Array<std::int32_t> query_start_loc({2}, {1, 2});
    Array<std::int32_t> seq_lens({1}, {static_cast<std::int32_t>(v.t + 1)});
    Array<std::int32_t> token_to_req({2}, {-1, 0});
    Array<std::int32_t> indices({2, 2, 128}, 99), lens({2}, 99);
    auto p = make_params<as_swa_index_params>();
    p.tables = tables.tensor;
    p.query_start_loc = query_start_loc.tensor;
    p.seq_lens = seq_lens.tensor;
    p.token_to_req = token_to_req.tensor;
    p.indices = indices.tensor;
    p.lens = lens.tensor;
    p.block_size = 64;
    p.window = 128;
    EXPECT_OK(run(AS_OP_SWA_INDEX, p));
    EXPECT_EQ(lens[0], 0);
    EXPECT_EQ(lens[1], v.swa_len);
    for (std::int64_t s = 0; s < 2; ++s) {
      for (std::int64_t k = 0; k < 128; ++k) {
        EXPECT_EQ(indices[s * 256 + k], -1);
        const std::int64_t token = v.swa_start + k;
        const std::int64_t block = s == 0 ? token / 64 + 1 : 2 * (token / 64) + 5;
        EXPECT_EQ(indices[s * 256 + 128 + k], k < v.swa_len ? block * 64 + token % 64 : -1);
      }
    }
  }
}

TEST(SlotMapping, VisibilityTableWorkedSlotsAndPadding) {
  for (const Visible& v : kVisible) {
    const std::int64_t columns = v.t / 64 + 1;
    Array<std::int32_t> groups({2, 2}, {256, 0, 64, 128});
    std::vector<std::int32_t> both = identity_table(columns);
    for (std::int64_t c = 0; c < columns; ++c) both.push_back(static_cast<std::int32_t>(c + 100));
    Array<std::int32_t> tables({2, 1, columns}, both);
    Array<std::int64_t> positions({2}, {7, v.t});
    Array<std::int32_t> token_to_req({2}, {-1, 0});
    Array<std::int64_t> slots({2, 2}, 99), c4({2}, 99), c128({2}, 99);
    Array<std::int32_t> c4_lens({2}, 99);
    auto p = make_params<as_slot_mapping_params>();
    p.groups = groups.tensor;
    p.tables = tables.tensor;
    p.positions = positions.tensor;
    p.token_to_req = token_to_req.tensor;
    p.slots = slots.tensor;
    p.c4_slots = c4.tensor;
    p.c128_slots = c128.tensor;
    p.c4_lens = c4_lens.tensor;
    p.mla_group = 0;
    EXPECT_OK(run(AS_OP_SLOT_MAPPING, p));
    EXPECT_EQ(slots[0], -1);
    EXPECT_EQ(slots[2], -1);
    EXPECT_EQ(c4[0], -1);
    EXPECT_EQ(c128[0], -1);
    EXPECT_EQ(c4_lens[0], 0);
    EXPECT_EQ(slots[1], (v.t / 256 + 1) * 256 + v.t % 256);
    EXPECT_EQ(slots[3], (v.t / 64 + 100) * 64 + v.t % 64);
    EXPECT_EQ(c4_lens[1], v.c4);
    const std::int64_t entry = v.t / 4;
    EXPECT_EQ(c4[1], v.t % 4 == 3 ? (entry / 64 + 1) * 64 + entry % 64 : -1);
    const std::int64_t far = v.t / 128;
    EXPECT_EQ(c128[1], v.t % 128 == 127 ? (far / 2 + 1) * 2 + far % 2 : -1);
  }
}

TEST(SlotMapping, CompressedSlotsOfAChunk) {
  // 240 tokens computed, 40 new ones, table [5, 7]: 10 entries, 5*64+60.. and 7*64+0..
  Array<std::int32_t> groups({1, 2}, {256, 0}), tables({1, 1, 2}, {5, 7});
  Array<std::int64_t> positions({40}), slots({1, 40}), c4({40});
  Array<std::int32_t> token_to_req({40}, 0);
  std::iota(positions.values.begin(), positions.values.end(), 240);
  auto p = make_params<as_slot_mapping_params>();
  p.groups = groups.tensor;
  p.tables = tables.tensor;
  p.positions = positions.tensor;
  p.token_to_req = token_to_req.tensor;
  p.slots = slots.tensor;
  p.c4_slots = c4.tensor;
  EXPECT_OK(run(AS_OP_SLOT_MAPPING, p));
  std::vector<std::int64_t> valid;
  for (std::int64_t slot : c4.values) {
    if (slot >= 0) valid.push_back(slot);
  }
  const std::vector<std::int64_t> expected = {380, 381, 382, 383, 448, 449, 450, 451, 452, 453};
  EXPECT_EQ(valid, expected);
  EXPECT_EQ(c4[3], 380);
  EXPECT_EQ(c4[4], -1);
}

TEST(C128Index, VisibilityTableAndPadding) {
  for (const Visible& v : kVisible) {
    const std::int64_t columns = v.t / 256 + 1;
    const std::int64_t width = as_c128_index_width(v.t + 1, 1048576);
    Array<std::int32_t> table({1, columns}, identity_table(columns));
    Array<std::int64_t> positions({2}, {v.t, 5000});
    Array<std::int32_t> token_to_req({2}, {0, -1});
    Array<std::int32_t> indices({2, width}, 99), lens({2}, 99);
    auto p = make_params<as_c128_index_params>();
    p.table = table.tensor;
    p.positions = positions.tensor;
    p.token_to_req = token_to_req.tensor;
    p.indices = indices.tensor;
    p.lens = lens.tensor;
    p.ratio = 128;
    p.rows_per_block = 2;
    EXPECT_OK(run(AS_OP_C128_INDEX, p));
    EXPECT_EQ(lens[0], v.c128);
    EXPECT_EQ(lens[1], 0);
    for (std::int64_t c = 0; c < width; ++c) {
      ASSERT_EQ(indices[c], c < v.c128 ? (c / 2 + 1) * 2 + c % 2 : -1);
      ASSERT_EQ(indices[width + c], -1);
    }
  }
}

TEST(TopkToSlots, MapsKeepsHolesAndCounts) {
  Array<std::int32_t> indices({3, 4}, {0, 63, 64, -1, 5, -1, 70, -1, 1, 2, 3, 4});
  Array<std::int32_t> table({2, 2}, {9, 4, 2, 8});
  Array<std::int32_t> token_to_req({3}, {0, 1, -1});
  Array<std::int32_t> slots({3, 4}, 99), lens({3}, 99);
  auto p = make_params<as_topk_to_slots_params>();
  p.indices = indices.tensor;
  p.table = table.tensor;
  p.token_to_req = token_to_req.tensor;
  p.slots = slots.tensor;
  p.lens = lens.tensor;
  p.rows_per_block = 64;
  EXPECT_OK(run(AS_OP_TOPK_TO_SLOTS, p));
  const std::vector<std::int32_t> expected = {9 * 64,     9 * 64 + 63, 4 * 64, -1, 2 * 64 + 5, -1,
                                              8 * 64 + 6, -1,          -1,     -1, -1,         -1};
  EXPECT_EQ(slots.values, expected);
  EXPECT_EQ(lens.values, (std::vector<std::int32_t>{3, 2, 0}));
}

}  // namespace index_ops_test
}  // namespace attnscope::kernel_tests
