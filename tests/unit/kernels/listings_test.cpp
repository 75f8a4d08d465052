// What published listings of paged kernels have otherwise: the stride by which a head's query is
// found, rows without a key, slots that do not fit 32 bits, the price of a scale a token.
#include <sys/mman.h>

#include <cstring>
#include <limits>

#include "kernels/params/paged_params.h"
#include "kernels/params/row_format.h"
#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace listings_test {

constexpr std::int64_t kDim = 16;

as_cache paged(void* memory, std::int32_t record, std::int64_t blocks, std::int64_t stride,
               std::int32_t rows, std::int32_t width) {
  as_cache c{};
  c.data = make_tensor(static_cast<unsigned char*>(memory), {blocks, stride});
  c.data.shape[1] = as_row_layout_of(record, width, 1, rows).page;
  c.data.stride[0] = stride;
  c.record = record;
  c.addressing = AS_PAGED;
  c.rows_per_block = rows;
  c.width = width;
  return c;
}

// Two heads over one head of keys: key 0 and value 1 along the first dim, key 1 and value 2 along
// the second.
struct Decode {
  explicit Decode(std::int32_t rows_seen)
      : seq_lens({1}, rows_seen),
        table({1, 1}, 0),
        token_to_req({1}, 0),
        positions({1}, std::int64_t{1}),
        q({1, 2, kDim}),
        k({2, kDim}),
        v({2, kDim}),
        o({1, 2, kDim}),
        lse({1, 2}) {
    q[0] = to_bf16(20);         // head 0 asks for key 0
    q[kDim + 1] = to_bf16(20);  // head 1 for key 1
    for (std::int64_t d = 0; d < kDim; ++d) {
      k[d] = to_bf16(d == 0 ? 1 : 0);
      k[kDim + d] = to_bf16(d == 1 ? 1 : 0);
      v[d] = to_bf16(1);
      v[kDim + d] = to_bf16(2);
    }
  }
  void run_with(const as_tensor& queries) {
    auto p = make_params<as_paged_attention_params>();
    p.q = queries;
    p.k_cache = paged(k.values.data(), AS_RECORD_BF16, 1, 4 * kDim, 2, kDim);
    p.v_cache = paged(v.values.data(), AS_RECORD_BF16, 1, 4 * kDim, 2, kDim);
    p.table = table.tensor;
    p.token_to_req = token_to_req.tensor;
    p.positions = positions.tensor;
    p.seq_lens = seq_lens.tensor;
    p.o = o.tensor;
    p.lse = lse.tensor;
    p.scale = 1;
    EXPECT_OK(run(AS_OP_PAGED_ATTENTION, p));
  }
  float out(std::int64_t head, std::int64_t d) { return to_float(o[head * kDim + d]); }

  Array<std::int32_t> seq_lens, table, token_to_req;
  Array<std::int64_t> positions;
  Array<bf16_t> q, k, v, o;
  Array<float> lse;
};

// The query of head h begins at h times the heads' stride. By the stride of dims, as a listing has
// it, head 1 would read the dims 1.. of head 0, which are zeros: no key before the other.
TEST(PublishedListings, AQueryIsFoundByTheStrideOfHeads) {
  Decode call(2);
  call.run_with(call.q.tensor);
  for (std::int64_t d = 0; d < kDim; ++d) {
    EXPECT_NEAR(call.out(0, d), 1, 0.01) << d;
    EXPECT_NEAR(call.out(1, d), 2, 0.01) << d;
  }
  Decode other(2);
  Array<bf16_t> by_dims({1, 2, kDim});
  for (std::int64_t d = 0; d < kDim; ++d) {
    by_dims[d] = call.q[d];
    by_dims[kDim + d] = call.q[1 + d];
  }
  other.run_with(by_dims.tensor);
  EXPECT_NEAR(other.out(1, 0), 1.5, 0.01);
}

// 0 / 0 of a listing that divides by a sum of nothing.
TEST(PublishedListings, ARowWithoutKeysIsZeroAndNoNaN) {
  Decode call(0);
  std::fill(call.o.values.begin(), call.o.values.end(), to_bf16(7));
  call.run_with(call.q.tensor);
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t d = 0; d < kDim; ++d) EXPECT_EQ(call.out(h, d), 0);
    EXPECT_EQ(call.lse[h], -std::numeric_limits<float>::infinity());
  }
}

// Block 134,217,728 of 16 rows begins at slot 2^31: a product in 32 bits would be negative.
constexpr std::int64_t kFarBlock = std::int64_t{1} << 27;
constexpr std::int64_t kFarSlot = (std::int64_t{1} << 31) + 5;

TEST(PublishedListings, SlotsHave64Bits) {
  Array<std::int32_t> groups({1, 2}, std::vector<std::int32_t>{16, 0}), tables({1, 1, 1}),
      token_to_req({1}, 0);
  tables[0] = static_cast<std::int32_t>(kFarBlock);
  Array<std::int64_t> positions({1}, 5), slots({1, 1});
  auto p = make_params<as_slot_mapping_params>();
  p.groups = groups.tensor;
  p.tables = tables.tensor;
  p.positions = positions.tensor;
  p.token_to_req = token_to_req.tensor;
  p.slots = slots.tensor;
  p.mla_group = -1;
  EXPECT_OK(run(AS_OP_SLOT_MAPPING, p));
  EXPECT_EQ(slots[0], kFarSlot);
  EXPECT_GT(slots[0], std::numeric_limits<std::int32_t>::max());
}

// Written and read there: memory is reserved for all blocks, and taken for the one that is written.
TEST(PublishedListings, RowsBehindTwoToThe31AreWrittenAndRead) {
  constexpr std::int32_t kRows = 16, kWidth = 8;
  const std::int64_t page = as_row_layout_of(AS_RECORD_BF16, kWidth, 1, kRows).page;
  const std::int64_t stride = 2 * page, blocks = kFarBlock + 1;
  const auto bytes = static_cast<std::size_t>(blocks * stride);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED) << "no address space for " << bytes << " bytes";
  Array<bf16_t> k({1, 1, kWidth}), v({1, 1, kWidth}), k_row({1, 1, kWidth});
  for (std::int64_t d = 0; d < kWidth; ++d) {
    k[d] = to_bf16(static_cast<float>(d + 1));
    v[d] = to_bf16(static_cast<float>(-d - 1));
  }
  Array<std::int64_t> positions({1}, std::int64_t{5}), slots({1}, kFarSlot);
  auto p = make_params<as_rope_kv_insert_params>();
  p.k = k.tensor;
  p.v = v.tensor;
  p.positions = positions.tensor;
  p.slots = slots.tensor;
  p.k_row = k_row.tensor;
  p.k_cache = paged(memory, AS_RECORD_BF16, blocks, stride, kRows, kWidth);
  p.v_cache = paged(static_cast<unsigned char*>(memory) + page, AS_RECORD_BF16, blocks, stride,
                    kRows, kWidth);
  EXPECT_OK(run(AS_OP_ROPE_KV_INSERT, p));
  // The token at position 5 sees its own row alone.
  Array<std::int32_t> table({1, 1}, static_cast<std::int32_t>(kFarBlock)), token_to_req({1}, 0),
      seq_lens({1}, 6);
  Array<bf16_t> q({1, 1, kWidth}), o({1, 1, kWidth});
  Array<float> lse({1, 1});
  q[0] = to_bf16(1);
  auto a = make_params<as_paged_attention_params>();
  a.q = q.tensor;
  a.k_cache = p.k_cache;
  a.v_cache = p.v_cache;
  a.table = table.tensor;
  a.token_to_req = token_to_req.tensor;
  a.positions = positions.tensor;
  a.seq_lens = seq_lens.tensor;
  a.o = o.tensor;
  a.lse = lse.tensor;
  a.scale = 1;
  a.causal = a.window = 1;
  EXPECT_OK(run(AS_OP_PAGED_ATTENTION, a));
  EXPECT_EQ(lse[0], 1);  // q . k
  for (std::int64_t d = 0; d < kWidth; ++d) {
    EXPECT_EQ(to_float(o[d]), static_cast<float>(-d - 1)) << d;
  }
  // In its own block, behind five rows, and not where 32 bits would have it.
  const auto* row = static_cast<const unsigned char*>(memory) + kFarBlock * stride + 5 * kWidth * 2;
  EXPECT_EQ(std::memcmp(row, k.values.data(), kWidth * 2), 0);
  munmap(memory, bytes);
}

// A scale a token is four bytes beside all of a row's elements, not two beside each of them: with 8
// heads of 128 dims half of bf16, not three quarters.
TEST(PublishedListings, AScaleATokenCostsFourBytesARow) {
  constexpr std::int64_t kHeads = 8, kSize = 128, kRows = 16;
  const as_row_layout fp8 = as_row_layout_of(AS_RECORD_FP8_TOKEN, kHeads * kSize, kHeads, kRows);
  const as_row_layout bf16 = as_row_layout_of(AS_RECORD_BF16, kHeads * kSize, kHeads, kRows);
  EXPECT_EQ(fp8.row, 1028);
  EXPECT_EQ(bf16.row, 2048);
  EXPECT_EQ(fp8.page, kRows * 1028);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const as_element_place first = as_element_at(&fp8, row, 0, 0);
    EXPECT_EQ(first.scale, kRows * 1024 + 4 * row);
    for (const std::int64_t head : {1, 7}) {
      EXPECT_EQ(as_element_at(&fp8, row, head, kSize - 1).scale, first.scale) << row;
    }
  }
}

}  // namespace listings_test
}  // namespace attnscope::kernel_tests
