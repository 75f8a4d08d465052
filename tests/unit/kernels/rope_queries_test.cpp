// rope_kv_insert without keys and values: the queries of a layer that reads another layer's rows.
#include "kernels/params/paged_params.h"
#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace rope_queries_test {

constexpr std::int64_t kTokens = 5, kHeads = 6, kKvHeads = 2, kSize = 16, kRows = 8;

struct Insertion {
  Array<bf16_t> q{{kTokens, kHeads, kSize}}, weight{{kSize}}, out{{kTokens, kHeads, kSize}};
  Array<std::int64_t> positions{{kTokens}};
  Array<float> table{{64, kSize}};
  as_rope_kv_insert_params p = make_params<as_rope_kv_insert_params>();

  Insertion() {
    Random random(5);
    fill_normal(q, random);
    fill_normal(weight, random);
    for (std::int64_t t = 0; t < kTokens; ++t) positions[t] = 7 * t + 1;
    for (std::int64_t i = 0; i < 64 * kSize; ++i) {
      table[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
    }
    p.q = q.tensor;
    p.q_weight = weight.tensor;
    p.positions = positions.tensor;
    p.rope.base = 10000;
    p.rope.factor = 1;
    p.rope.table = table.tensor;
    p.q_out = out.tensor;
    p.eps = 1e-6;
  }
};

TEST(RopeQueries, AreThoseThatACallWithRowsMakes) {
  Insertion alone, beside;
  EXPECT_OK(run(AS_OP_ROPE_KV_INSERT, alone.p));

  Array<bf16_t> k({kTokens, kKvHeads, kSize}), v({kTokens, kKvHeads, kSize});
  Array<bf16_t> k_pages({1, kRows * kKvHeads * kSize}), v_pages({1, kRows * kKvHeads * kSize});
  Array<std::int64_t> slots({kTokens}, -1);
  Random random(6);
  fill_normal(k, random);
  fill_normal(v, random);
  const auto cache = [](Array<bf16_t>& pages) {
    as_cache c{};
    c.data = pages.tensor;
    c.data.dtype = AS_U8;
    c.data.shape[1] *= 2;
    c.data.stride[0] *= 2;
    c.data.reserved = kKvHeads;
    c.record = AS_RECORD_BF16;
    c.rows_per_block = kRows;
    c.width = kKvHeads * kSize;
    return c;
  };
  beside.p.k = k.tensor;
  beside.p.v = v.tensor;
  beside.p.slots = slots.tensor;
  beside.p.k_cache = cache(k_pages);
  beside.p.v_cache = cache(v_pages);
  EXPECT_OK(run(AS_OP_ROPE_KV_INSERT, beside.p));
  for (std::int64_t i = 0; i < kTokens * kHeads * kSize; ++i) {
    ASSERT_EQ(alone.out[i].bits, beside.out[i].bits) << i;
  }
}

TEST(RopeQueries, NeedWhatAllQueriesNeed) {
  Insertion without_out;
  without_out.p.q_out = no_tensor();
  EXPECT_REFUSED(run(AS_OP_ROPE_KV_INSERT, without_out.p), "q_out");
  Insertion without_all;
  without_all.p.q = no_tensor();
  EXPECT_REFUSED(run(AS_OP_ROPE_KV_INSERT, without_all.p), "q is absent");
  Insertion late;
  late.positions[2] = 64;
  EXPECT_REFUSED(run(AS_OP_ROPE_KV_INSERT, late.p), "position");
  // Values alone are no such call.
  Insertion values;
  Array<bf16_t> v({kTokens, kKvHeads, kSize});
  values.p.v = v.tensor;
  EXPECT_REFUSED(run(AS_OP_ROPE_KV_INSERT, values.p), "k is absent");
}

}  // namespace rope_queries_test
}  // namespace attnscope::kernel_tests
