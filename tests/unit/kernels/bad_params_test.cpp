// What ops refuse, and that a refused op writes nothing; steps without tokens.
#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace bad_params_test {

struct SmallInsert {
  Array<bf16_t> kv_row{{3, 512}, to_bf16(1.0f)};
  Array<std::int64_t> slots{{3}, {0, 1, 2}};
  PagedCache cache{AS_RECORD_LATENT, 512, 2, 2};
  std::vector<unsigned char> before = cache.bytes();

  as_q_rope_kv_insert_params params() {
    auto p = make_params<as_q_rope_kv_insert_params>();
    p.kv_row = kv_row.tensor;
    p.slots = slots.tensor;
    p.cache = cache.view();
    p.rows_given = 1;
    return p;
  }
};

TEST(BadParams, SlotsOutsideTheCacheNameTokenAndSlot) {
  for (std::int64_t bad : {std::int64_t{4}, std::int64_t{-2}, std::int64_t{1} << 40}) {
    SmallInsert s;
    s.slots[1] = bad;
    const Outcome outcome = run(AS_OP_Q_ROPE_KV_INSERT, s.params());
    EXPECT_REFUSED(outcome, "slots[1] is slot " + std::to_string(bad));
    EXPECT_REFUSED(outcome, "rows 0 to 3");
    EXPECT_EQ(s.cache.bytes(), s.before);
  }
}

TEST(BadParams, CachesOfTheWrongKind) {
  const auto refuse = [](auto change, const char* text) {
    SmallInsert s;
    auto p = s.params();
    change(p);
    EXPECT_REFUSED(run(AS_OP_Q_ROPE_KV_INSERT, p), text);
    EXPECT_EQ(s.cache.bytes(), s.before);
  };
  using P = as_q_rope_kv_insert_params;
  refuse([](P& p) { p.cache.record = AS_RECORD_INDEX_FP8; }, "LATENT");
  refuse([](P& p) { p.cache.record = AS_RECORD_NONE; }, "LATENT");
  refuse([](P& p) { p.q_norm = 3; }, "q_norm");
  refuse([](P& p) { p.scale_floor = -1; }, "scale_floor");
  refuse([](P& p) { p.cache.width = 128; }, "512");
  refuse([](P& p) { p.cache.rows_per_block = 0; }, "rows per block");
  refuse([](P& p) { p.cache.rows_per_block = 3; }, "pages or rows of");
  refuse([](P& p) { p.cache.addressing = 2; }, "AS_PAGED");
  refuse([](P& p) { p.cache.data.stride[0] = 1000; }, "stride");
  refuse([](P& p) { p.cache.data.dtype = AS_F32; }, "u8");
  refuse([](P& p) { p.cache.data.device = 1; }, "device");
  refuse([](P& p) { p.kv_row.dtype = AS_F32; }, "kv_row is f32");
  refuse([](P& p) { p.kv_row.shape[1] = 511; }, "[3,512]");
  refuse([](P& p) { p.kv_row.shape[0] = 2; }, "[3,512]");
  refuse([](P& p) { p.kv_row.rank = 3; }, "kv_row has shape");
  refuse([](P& p) { p.kv_row.data = nullptr; }, "no data");
  refuse([](P& p) { p.kv_row = no_tensor(); }, "absent");
  refuse([](P& p) { p.kv_row.stride[1] = 2; }, "last dim");
}

TEST(BadParams, PositionsBeyondTheRotaryTable) {
  Array<bf16_t> o({2, 1, 512}), out({2, 1, 512});
  Rope rope(10);
  for (std::int64_t bad : {-1, 10}) {
    Array<std::int64_t> positions({2}, {3, bad});
    auto p = make_params<as_inverse_rope_params>();
    p.o = o.tensor;
    p.out = out.tensor;
    p.positions = positions.tensor;
    p.rope = rope.view();
    EXPECT_REFUSED(run(AS_OP_INVERSE_ROPE, p), "token 1 has position " + std::to_string(bad));
  }
}

TEST(BadParams, ListsOfAttention) {
  Array<bf16_t> q({1, 1, 512}), o({1, 1, 512});
  Array<std::int32_t> indices({1, 4}, {0, 5, -1, 999}), lens({1}, {3});
  Array<float> sinks({1}), lse({1, 1});
  PagedCache cache(AS_RECORD_LATENT, 512, 2, 3);
  std::fill(cache.bytes().begin(), cache.bytes().end(), 0);
  auto p = make_params<as_sparse_attention_params>();
  p.q = q.tensor;
  p.cache = cache.view();
  p.indices = indices.tensor;
  p.topk_length = lens.tensor;
  p.sinks = sinks.tensor;
  p.o = o.tensor;
  p.lse = lse.tensor;
  p.scale = 1.0;
  EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, p));  // the slot behind the length is not looked at
  lens[0] = 4;
  EXPECT_REFUSED(run(AS_OP_SPARSE_ATTENTION, p), "token 0 is slot 999");
  lens[0] = 5;
  EXPECT_REFUSED(run(AS_OP_SPARSE_ATTENTION, p), "5 entries");
  lens[0] = 2;
  p.extra_cache = cache.view();
  EXPECT_REFUSED(run(AS_OP_SPARSE_ATTENTION, p), "extra_indices is absent");
}

TEST(BadParams, TablesThatAreTooShort) {
  Array<std::int32_t> table({1, 1}, {1}), token_to_req({1}, {0}), lens({1}, {0});
  Array<std::int64_t> positions({1}, {300});
  Array<std::int32_t> indices({1, 128});
  auto p = make_params<as_c128_index_params>();
  p.table = table.tensor;
  p.positions = positions.tensor;
  p.token_to_req = token_to_req.tensor;
  p.indices = indices.tensor;
  p.lens = lens.tensor;
  p.ratio = 128;
  p.rows_per_block = 1;
  EXPECT_REFUSED(run(AS_OP_C128_INDEX, p), "column 1 of table, which has 1");
  table[0] = -3;
  positions[0] = 127;
  EXPECT_REFUSED(run(AS_OP_C128_INDEX, p), "block id -3");
  token_to_req[0] = 1;
  EXPECT_REFUSED(run(AS_OP_C128_INDEX, p), "token_to_req[0] is 1");
}

TEST(BadParams, IndexLogits) {
  Array<std::uint8_t> q({1, 2, 128});
  Array<float> weights({1, 2}), logits({1, 6});
  Array<std::int32_t> table({1, 1}, {2}), token_to_req({1}, {0}), lens({1}, {7});
  PagedCache cache(AS_RECORD_INDEX_FP8, 128, 4, 2);
  auto p = make_params<as_indexer_logits_params>();
  p.q = q.tensor;
  p.weights = weights.tensor;
  p.cache = cache.view();
  p.table = table.tensor;
  p.token_to_req = token_to_req.tensor;
  p.lens = lens.tensor;
  p.logits = logits.tensor;
  EXPECT_REFUSED(run(AS_OP_INDEXER_LOGITS, p), "lens[0] is 7");
  lens[0] = 5;
  EXPECT_REFUSED(run(AS_OP_INDEXER_LOGITS, p), "the cache has rows 0 to 7");  // block 2 of 2
  table[0] = 1;
  EXPECT_REFUSED(run(AS_OP_INDEXER_LOGITS, p), "column 1");
  token_to_req[0] = -1;
  EXPECT_REFUSED(run(AS_OP_INDEXER_LOGITS, p), "padding");
  lens[0] = 0;
  EXPECT_OK(run(AS_OP_INDEXER_LOGITS, p));
}

TEST(BadParams, ShapesThatDisagree) {
  Array<bf16_t> x({2, 8}), weight({3, 9}), y({2, 3});
  auto p = make_params<as_linear_params>();
  p.x = x.tensor;
  p.weight = weight.tensor;
  p.y = y.tensor;
  EXPECT_REFUSED(run(AS_OP_WO_B, p), "wo_b: x has shape [2,8]; it must be [any,9]");
  EXPECT_REFUSED(run(AS_OP_LM_HEAD, p), "lm_head: ");
}

TEST(BadParams, CompressInsert) {
  Array<bf16_t> row({1, 512});
  Array<std::int64_t> slots({1}, {0}), positions({1}, {4});
  Array<std::int32_t> table({1, 2}, {0, 1}), token_to_req({1}, {0});
  Array<bf16_t> weight({512});
  Rope rope(100);
  PagedCache cache(AS_RECORD_LATENT, 512, 2, 1), state(AS_RECORD_STATE, 2048, 4, 2);
  auto p = make_params<as_compress_insert_params>();
  p.state = state.view();
  p.table = table.tensor;
  p.token_to_req = token_to_req.tensor;
  p.positions = positions.tensor;
  p.slots = slots.tensor;
  p.weight = weight.tensor;
  p.rope = rope.view();
  p.row = row.tensor;
  p.cache = cache.view();
  p.ratio = 5;
  EXPECT_REFUSED(run(AS_OP_COMPRESS_INSERT, p), "allowed: 4, 128");
  p.ratio = 4;
  EXPECT_REFUSED(run(AS_OP_COMPRESS_INSERT, p), "position 4");
  positions[0] = 7;
  p.hadamard = 1;
  EXPECT_REFUSED(run(AS_OP_COMPRESS_INSERT, p), "hadamard");
  p.hadamard = 0;
  p.fp4_rule = 2;
  EXPECT_REFUSED(run(AS_OP_COMPRESS_INSERT, p), "fp4_rule");
  p.fp4_rule = AS_FP4_EVEN;
  table[1] = 2;
  EXPECT_REFUSED(run(AS_OP_COMPRESS_INSERT, p), "position 4 lies in state slot 8");
  p.state.width = 1024;
  EXPECT_REFUSED(run(AS_OP_COMPRESS_INSERT, p), "2048");
}

TEST(NoTokens, EveryShapeOfEmptinessIsFine) {
  const auto empty = [](std::int32_t dtype, std::initializer_list<std::int64_t> shape) {
    return make_tensor(nullptr, dtype, shape);
  };
  Array<bf16_t> weight({8, 16}), norm({16});
  auto linear = make_params<as_linear_params>();
  linear.x = empty(AS_BF16, {0, 16});
  linear.weight = weight.tensor;
  linear.y = empty(AS_F32, {0, 8});
  EXPECT_OK(run(AS_OP_LM_HEAD, linear));
  auto rms = make_params<as_rms_norm_params>();
  rms.x = rms.y = empty(AS_BF16, {0, 16});
  rms.weight = norm.tensor;
  EXPECT_OK(run(AS_OP_FINAL_NORM, rms));
  auto sample = make_params<as_sample_params>();
  sample.logits = empty(AS_F32, {0, 8});
  sample.tokens = empty(AS_I32, {0});
  EXPECT_OK(run(AS_OP_SAMPLE, sample));
  SmallInsert s;
  auto insert = s.params();
  insert.kv_row = empty(AS_BF16, {0, 512});
  insert.slots = empty(AS_I64, {0});
  EXPECT_OK(run(AS_OP_Q_ROPE_KV_INSERT, insert));
  auto attention = make_params<as_sparse_attention_params>();
  Array<float> sinks({4});
  attention.q = attention.o = empty(AS_BF16, {0, 4, 512});
  attention.cache = s.cache.view();
  attention.indices = empty(AS_I32, {0, 128});
  attention.topk_length = empty(AS_I32, {0});
  attention.sinks = sinks.tensor;
  attention.lse = empty(AS_F32, {0, 4});
  EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, attention));
  auto topk = make_params<as_indexer_topk_params>();
  topk.logits = empty(AS_F32, {0, 0});
  topk.lens = empty(AS_I32, {0});
  topk.indices = empty(AS_I32, {0, 512});
  EXPECT_OK(run(AS_OP_INDEXER_TOPK, topk));
  Array<std::int32_t> groups({1, 2}, {64, 128});
  auto mapping = make_params<as_slot_mapping_params>();
  mapping.groups = groups.tensor;
  mapping.tables = empty(AS_I32, {1, 0, 0});
  mapping.positions = empty(AS_I64, {0});
  mapping.token_to_req = empty(AS_I32, {0});
  mapping.slots = empty(AS_I64, {1, 0});
  mapping.mla_group = -1;
  EXPECT_OK(run(AS_OP_SLOT_MAPPING, mapping));
}

}  // namespace bad_params_test
}  // namespace attnscope::kernel_tests
