// RowAccess: which rows a call names, by every kind of access, and that the table of accesses and
// the op table tell the same of every op.
#include "kernels/params/row_access.h"

#include <tuple>
#include <vector>

#include "kernels/params/helper_params.h"
#include "kernels/params/op_table.h"
#include "kernels/params/paged_params.h"
#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace row_access_test {

using Visit = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // token, place, slot
using Visits = std::vector<Visit>;

Visits visits(std::int32_t op, const void* params, std::size_t cache) {
  Visits out;
  const as_cache_access* access = RowAccess::find(op, cache);
  if (access == nullptr) {
    ADD_FAILURE() << "op " << op << " has no access at " << cache;
    return out;
  }
  RowAccess::for_each(params, *access,
                      [&](const RowVisit& v) { out.emplace_back(v.token, v.place, v.slot); });
  return out;
}

as_cache pages(std::int32_t rows_per_block) {
  as_cache c{};
  c.rows_per_block = rows_per_block;
  return c;
}

TEST(RowAccess, Slots) {
  Array<std::int64_t> slots({4}, {7, -1, 130, 7});
  auto p = make_params<as_q_rope_kv_insert_params>();
  p.slots = slots.tensor;
  const std::size_t cache = offsetof(as_q_rope_kv_insert_params, cache);
  EXPECT_EQ(visits(AS_OP_Q_ROPE_KV_INSERT, &p, cache), (Visits{{0, 0, 7}, {2, 0, 130}, {3, 0, 7}}));
  p.slots = no_tensor();
  EXPECT_EQ(visits(AS_OP_Q_ROPE_KV_INSERT, &p, cache), Visits{});
}

TEST(RowAccess, SlotsOfAHelperOp) {
  Array<std::int64_t> slots({3}, {-1, 5, 2});
  auto p = make_params<as_gather_rows_params>();
  p.slots = slots.tensor;
  EXPECT_EQ(visits(AS_OP_GATHER_ROWS, &p, offsetof(as_gather_rows_params, cache)),
            (Visits{{1, 0, 5}, {2, 0, 2}}));
}

// Holes are passed over; what stands behind the length is not looked at; a length beyond the list
// ends with it, one below 0 is none.
TEST(RowAccess, List) {
  Array<std::int32_t> list({4, 3}, {5, -1, 6,  //
                                    8, 9, 10,  //
                                    3, 4, 3,   //
                                    1, 1, 1});
  Array<std::int32_t> lens({4}, {3, 1, 9, -2});
  auto p = make_params<as_sparse_attention_params>();
  p.indices = list.tensor;
  p.topk_length = lens.tensor;
  EXPECT_EQ(visits(AS_OP_SPARSE_ATTENTION, &p, offsetof(as_sparse_attention_params, cache)),
            (Visits{{0, 0, 5}, {0, 2, 6}, {1, 0, 8}, {2, 0, 3}, {2, 1, 4}, {2, 2, 3}}));
}

TEST(RowAccess, TheOtherListIsNotThere) {
  Array<std::int32_t> list({1, 1}, {5}), lens({1}, {1}), more({1, 2}, {64, 65}), many({1}, {2});
  auto p = make_params<as_sparse_attention_params>();
  p.indices = list.tensor;
  p.topk_length = lens.tensor;
  const std::size_t extra = offsetof(as_sparse_attention_params, extra_cache);
  EXPECT_EQ(visits(AS_OP_SPARSE_ATTENTION, &p, extra), Visits{});
  p.extra_indices = more.tensor;
  EXPECT_EQ(visits(AS_OP_SPARSE_ATTENTION, &p, extra), Visits{});  // no lengths
  p.extra_topk_length = many.tensor;
  EXPECT_EQ(visits(AS_OP_SPARSE_ATTENTION, &p, extra), (Visits{{0, 0, 64}, {0, 1, 65}}));
}

struct Logits {
  Array<std::int32_t> table{{3, 2}, {3, 5, 9, -1, 0, 1}};
  Array<std::int32_t> token_to_req{{6}, {0, 0, 1, 1, 1, -1}};
  Array<std::int32_t> lens{{6}, {2, 3, 1, 2, 2, 0}};
  as_indexer_logits_params p = make_params<as_indexer_logits_params>();

  Logits() {
    p.cache = pages(2);
    p.table = table.tensor;
    p.token_to_req = token_to_req.tensor;
    p.lens = lens.tensor;
  }
  Visits rows() const {
    return visits(AS_OP_INDEXER_LOGITS, &p, offsetof(as_indexer_logits_params, cache));
  }
};

// Blocks of two rows. Request 0 has blocks 3 and 5, request 1 block 9; no token is of request 2.
TEST(RowAccess, Table) {
  Logits call;
  EXPECT_EQ(call.rows(), (Visits{{1, 0, 6}, {1, 1, 7}, {1, 2, 10}, {4, 0, 18}, {4, 1, 19}}));
  // The token that sees most need not be the last one.
  call.lens[0] = 4;
  EXPECT_EQ(call.rows()[0], (Visit{0, 0, 6}));
  EXPECT_EQ(call.rows()[3], (Visit{0, 3, 11}));
}

TEST(RowAccess, TableThatEndsTooSoon) {
  Logits call;
  call.lens[1] = 7;
  EXPECT_EQ(call.rows(), (Visits{{1, 0, 6},
                                 {1, 1, 7},
                                 {1, 2, 10},
                                 {1, 3, 11},
                                 {1, 4, RowAccess::kBeyondTable},
                                 {4, 0, 18},
                                 {4, 1, 19}}));
}

TEST(RowAccess, TableOfNegativeIdsAndStrayRequests) {
  Logits call;
  call.lens[4] = 3;  // block -1
  EXPECT_EQ(call.rows().back(), (Visit{4, 2, -2}));
  call.token_to_req[4] = 3;
  call.token_to_req[3] = 3;
  EXPECT_EQ(call.rows().back(), (Visit{2, 0, 18}));
}

TEST(RowAccess, TableOfALogicalCache) {
  Logits call;
  Array<std::int32_t> first({2, 1}, {100, 40});
  call.p.cache.addressing = AS_LOGICAL;
  call.p.cache.rows_per_block = 0;
  call.p.table = first.tensor;
  EXPECT_EQ(call.rows(), (Visits{{1, 0, 100}, {1, 1, 101}, {1, 2, 102}, {4, 0, 40}, {4, 1, 41}}));
  call.p.cache.addressing = AS_PAGED;  // of pages without rows
  EXPECT_EQ(call.rows(), Visits{});
}

struct Compress {
  Array<std::int32_t> table{{2, 4}, {1, 2, 3, 4, 7, 8, 9, 10}};
  Array<std::int32_t> token_to_req{{5}, {0, 0, 1, 1, -1}};
  Array<std::int64_t> positions{{5}, {3, 4, 10, 11, 3}};
  Array<std::int64_t> slots{{5}, {20, -1, -1, 21, 22}};
  as_compress_insert_params p = make_params<as_compress_insert_params>();

  Compress() {
    p.state = pages(4);
    p.table = table.tensor;
    p.token_to_req = token_to_req.tensor;
    p.positions = positions.tensor;
    p.slots = slots.tensor;
    p.ratio = 4;
  }
  Visits rows() const {
    return visits(AS_OP_COMPRESS_INSERT, &p, offsetof(as_compress_insert_params, state));
  }
};

// An entry of ratio 4 pools eight positions, the first of a request the four that there are.
TEST(RowAccess, Window) {
  const Compress call;
  EXPECT_EQ(call.rows(), (Visits{{0, 0, 4},
                                 {0, 1, 5},
                                 {0, 2, 6},
                                 {0, 3, 7},
                                 {3, 4, 32},
                                 {3, 5, 33},
                                 {3, 6, 34},
                                 {3, 7, 35},
                                 {3, 8, 36},
                                 {3, 9, 37},
                                 {3, 10, 38},
                                 {3, 11, 39}}));
  EXPECT_EQ(
      visits(AS_OP_INDEXER_COMPRESS_INSERT, &call.p, offsetof(as_compress_insert_params, state)),
      call.rows());
}

// All others pool as many positions as their ratio says.
TEST(RowAccess, WindowOfAnotherRatio) {
  Compress call;
  call.p.ratio = 2;
  EXPECT_EQ(call.rows(), (Visits{{0, 2, 6}, {0, 3, 7}, {3, 10, 38}, {3, 11, 39}}));
}

TEST(RowAccess, WindowThatEndsBehindTheTable) {
  Compress call;
  call.positions[3] = 17;
  const Visits rows = call.rows();
  ASSERT_EQ(rows.size(), 11u);
  EXPECT_EQ(rows[9], (Visit{3, 15, 43}));
  EXPECT_EQ(rows[10], (Visit{3, 16, RowAccess::kBeyondTable}));
}

// In chunks of 4 position 5 sees 4 and 5; without them all rows before it.
TEST(RowAccess, ContextThatEndsWithChunks) {
  Array<std::int32_t> table({1, 3}, {5, 2, 9});
  Array<std::int32_t> requests({2}, {0, 0}), lens({1}, {6});
  Array<std::int64_t> positions({2}, {1, 5});
  auto p = make_params<as_paged_attention_params>();
  p.k_cache = pages(2);
  p.table = table.tensor;
  p.token_to_req = requests.tensor;
  p.positions = positions.tensor;
  p.seq_lens = lens.tensor;
  p.causal = 1;
  p.chunk = 4;
  const std::size_t cache = offsetof(as_paged_attention_params, k_cache);
  EXPECT_EQ(visits(AS_OP_PAGED_ATTENTION, &p, cache),
            (Visits{{0, 0, 10}, {0, 1, 11}, {1, 4, 18}, {1, 5, 19}}));
  p.chunk = 0;
  EXPECT_EQ(visits(AS_OP_PAGED_ATTENTION, &p, cache).size(), 6u);
}

TEST(RowAccess, RowsThatAreGivenReadNoState) {
  Compress call;
  call.p.rows_given = 1;
  EXPECT_EQ(call.rows(), Visits{});
  EXPECT_EQ(visits(AS_OP_COMPRESS_INSERT, &call.p, offsetof(as_compress_insert_params, cache)),
            (Visits{{0, 0, 20}, {3, 0, 21}, {4, 0, 22}}));
}

// Also where the table is too short: a copy of the rows has to have room for them.
TEST(RowAccess, EndsOfTheRowsByRequest) {
  Logits logits;
  logits.lens[1] = 7;
  const std::size_t cache = offsetof(as_indexer_logits_params, cache);
  EXPECT_EQ(RowAccess::ends(&logits.p, *RowAccess::find(AS_OP_INDEXER_LOGITS, cache)),
            (std::vector<std::int64_t>{7, 2, 0}));
  Compress pooled;
  const std::size_t state = offsetof(as_compress_insert_params, state);
  const as_cache_access& access = *RowAccess::find(AS_OP_COMPRESS_INSERT, state);
  EXPECT_EQ(RowAccess::ends(&pooled.p, access), (std::vector<std::int64_t>{4, 12}));
  pooled.p.rows_given = 1;
  EXPECT_EQ(RowAccess::ends(&pooled.p, access), (std::vector<std::int64_t>{0, 0}));
}

// One access for each cache of an op, of the same direction; where it writes, by the slots that the
// op table masks the rows with.
void expect_same(std::int32_t op, const char* name, const as_tap_info* taps, std::uint32_t count) {
  std::size_t caches = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (taps[i].kind != AS_TAP_CACHE) continue;
    ++caches;
    const as_cache_access* access = RowAccess::find(op, taps[i].offset);
    ASSERT_NE(access, nullptr) << name << ": " << taps[i].name;
    EXPECT_EQ(access->direction, taps[i].direction) << name << ": " << taps[i].name;
    if (taps[i].direction == AS_TAP_IN) continue;
    EXPECT_EQ(access->by, AS_BY_SLOTS) << name;
    EXPECT_EQ(access->rows, taps[i].mask_offset) << name;
  }
  EXPECT_EQ(RowAccess::of(op).size(), caches) << name;
}

TEST(RowAccess, EveryCacheOfTheOpTableIsListed) {
  for (int i = 0; as_op_at(i) != nullptr; ++i) {
    const as_op_info& op = *as_op_at(i);
    expect_same(op.id, op.name, op.taps, op.num_taps);
  }
  EXPECT_TRUE(RowAccess::of(-1).empty());
  EXPECT_TRUE(RowAccess::of(AS_OP_COUNT).empty());
}

}  // namespace row_access_test
}  // namespace attnscope::kernel_tests
