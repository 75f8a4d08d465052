#include "kernels/params/op_table.h"
#include "tests/unit/reference/lane_test.h"

namespace attnscope::reference {
namespace lanes_test {

TEST(Lanes, HaveEveryOp) {
  for (const Lane* lane : {exact_lane(), sim_lane(), fp32_lane()}) {
    for (int id = 0; id < AS_OP_COUNT; ++id) {
      EXPECT_NE(lane->ops[id], nullptr) << as_op_find(id)->name;
    }
  }
  EXPECT_EQ(sim_lane()->ops.count(), AS_NUM_OPS) << "with the helper ops";
  EXPECT_STREQ(exact_lane()->name, "ref.exact");
  EXPECT_STREQ(sim_lane()->name, "ref.sim");
  EXPECT_STREQ(fp32_lane()->name, "ref.fp32");
}

// 2^24 + 1 - 2^24 is 1, and 0 where 2^24 + 1 has to be an fp32 number.
TEST(Lanes, ThirdOneSumsInFp32) {
  for (const std::int64_t tokens : {1, 9}) {  // few rows are summed one by one
    Doubles x, weight = {1, 1, 1}, y(static_cast<std::size_t>(tokens));
    for (std::int64_t t = 0; t < tokens; ++t) x.insert(x.end(), {0x1p24, 1, -0x1p24});
    auto p = new_params<as_linear_params>();
    p.x = over(x, {tokens, 3});
    p.weight = over(weight, {1, 3});
    p.y = over(y, {tokens, 1});
    run(sim_lane(), AS_OP_LM_HEAD, p);
    EXPECT_EQ(y, Doubles(y.size(), 1));
    run(fp32_lane(), AS_OP_LM_HEAD, p);
    EXPECT_EQ(y, Doubles(y.size(), 0));
  }
}

// Every op refuses a struct of another size and names itself.
TEST(Lanes, RefuseForeignStructs) {
  std::vector<Byte> zeros(2048, 0);
  for (const Lane* lane : {exact_lane(), sim_lane(), fp32_lane()}) {
    for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
      const std::int32_t id = op->id;
      if (lane->ops[id] == nullptr) continue;
      as_error error{};
      EXPECT_EQ(lane->ops[id](zeros.data(), nullptr, &error), AS_BAD_INPUT);
      const std::string start = std::string(lane->name) + " " + op->name + ": ";
      EXPECT_EQ(std::string(error.message).rfind(start, 0), 0U) << error.message;
      EXPECT_EQ(lane->ops[id](nullptr, nullptr, nullptr), AS_BAD_INPUT);
    }
  }
}

TEST(Lanes, SayWhatIsWrongWithATensor) {
  Doubles x(6), weight(8), y(4);
  Int32s integers(6);
  auto p = new_params<as_linear_params>();
  p.x = over(x, {2, 3});
  p.weight = over(weight, {2, 4});
  p.y = over(y, {2, 2});
  expect_refused(AS_OP_WO_B, p, {"wo_b", "weight has shape [2,4]", "expected [2,3]"});
  p.weight = over(weight, {2, 3, 1});
  expect_refused(AS_OP_WO_B, p, {"weight has rank 3", "[2,3]"});
  p.weight = over(integers, {2, 3});
  expect_refused(AS_OP_WO_B, p, {"weight has dtype i32", "f64, f32 or bf16"});
  p.weight = over(weight, {2, 3});
  p.weight.device = 1;
  expect_refused(AS_OP_WO_B, p, {"weight lies on device 1"});
  p.weight = no_tensor();
  expect_refused(AS_OP_WO_B, p, {"weight"});
  p.weight = over(weight, {2, 3});
  p.weight.data = nullptr;
  expect_refused(AS_OP_WO_B, p, {"weight has no data"});
}

TEST(Lanes, SayWhatIsWrongWithACache) {
  auto p = new_params<as_q_rope_kv_insert_params>();
  Int64s slots = {0};
  Doubles rows(512);
  std::vector<Byte> records(584);
  p.slots = over(slots, {1});
  p.kv_row = over(rows, {1, 512});
  p.rows_given = 1;
  p.cache = logical(records, AS_RECORD_LATENT, 512, 584);
  p.cache.addressing = AS_PAGED;
  expect_refused(AS_OP_Q_ROPE_KV_INSERT, p, {"cache is paged", "AS_LOGICAL"});
  p.cache.addressing = AS_LOGICAL;
  p.cache.record = AS_RECORD_STATE;
  expect_refused(AS_OP_Q_ROPE_KV_INSERT, p, {"STATE", "allowed: LATENT"});
  p.cache.record = AS_RECORD_LATENT;
  p.cache.width = 500;
  expect_refused(AS_OP_Q_ROPE_KV_INSERT, p, {"width 500", "512"});
  p.cache = logical(records, AS_RECORD_LATENT, 512, 73);
  expect_refused(AS_OP_Q_ROPE_KV_INSERT, p, {"cache has shape [8,73]", "584"});
  p.cache = logical(records, AS_RECORD_LATENT, 512, 584);
  slots[0] = 1;
  expect_refused(AS_OP_Q_ROPE_KV_INSERT, p, {"cache 1 of token 0", "0 to 0"});
}

TEST(Lanes, AcceptStepsWithoutTokens) {
  auto p = new_params<as_sparse_attention_params>();
  Doubles none;
  std::vector<float> sinks(2);
  Doubles rows(512);
  p.q = make_tensor(none.data(), {0, 2, 512});
  p.cache = logical(rows, AS_RECORD_LATENT, 512, 512);
  Int32s integers(1);
  p.indices = over(integers, {0, 128});
  p.topk_length = over(integers, {0});
  p.sinks = over(sinks, {2});
  p.o = make_tensor(none.data(), {0, 2, 512});
  p.lse = make_tensor(none.data(), {0, 2});
  run(sim_lane(), AS_OP_SPARSE_ATTENTION, p);

  auto linear = new_params<as_linear_params>();
  Doubles weight(6);
  linear.x = make_tensor(none.data(), {0, 3});
  linear.weight = over(weight, {2, 3});
  linear.y = make_tensor(none.data(), {0, 2});
  run(sim_lane(), AS_OP_WO_B, linear);
}

}  // namespace lanes_test
}  // namespace attnscope::reference
