// What ops are given and no op puts out: wrong numbers of a step, a wrong rotary table, a tensor
// that somebody wrote to. The references are fed the same, so only these checks can tell.
#include "engine/session/verify/input_checks.h"

#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"
#include "tests/blame/tiny_session.h"

namespace attnscope {
namespace input_checks_test {

// In the middle of step 1: tokens 0 to 21 are the end of request 0, 22 to 39 are request 1.
class InputChecks : public testing::Test {
 protected:
  InputChecks() : session_(tiny_session()) {
    EXPECT_TRUE(session_->step());
    while (session_->cursor().layer < 0) EXPECT_TRUE(session_->op());
  }
  std::vector<TapResult> of(const StepMetadata& step) const {
    return check_tokens(step, session_->serving());
  }

  std::unique_ptr<Session> session_;
};

TEST_F(InputChecks, EveryListOfTheMetadataIsHeldAgainstTheRequests) {
  const StepMetadata& sound = session_->metadata();
  EXPECT_TRUE(of(sound).empty());
  struct Spoil {
    const char* tap;
    const char* note;
    void (*apply)(StepMetadata&);
  };
  const Spoil spoils[] = {
      {"tokens", "token 39 (request 1, position 17): is ", [](auto& s) { s.tokens[39] ^= 1; }},
      {"positions", "token 23 (request 1, position 1): is 2, must be 1",
       [](auto& s) { ++s.positions[23]; }},
      {"token_to_req", "token 22 (request 1, position 0): is 0, must be 1",
       [](auto& s) { s.token_to_req[22] = 0; }},
      {"query_start_loc", "place 1: is 21, must be 22", [](auto& s) { --s.query_start_loc[1]; }},
      {"seq_lens", "place 0: is 397, must be 396", [](auto& s) { ++s.seq_lens[0]; }},
      {"sample_rows", "place 0: is 20, must be 21", [](auto& s) { --s.sample_rows[0]; }},
      {"sample_rows", "place 1: is missing, must be 39", [](auto& s) { s.sample_rows.pop_back(); }},
      {"sample_request", "place 1: is 0, must be 1", [](auto& s) { s.sample_request[1] = 0; }},
  };
  for (const Spoil& spoil : spoils) {
    SCOPED_TRACE(spoil.tap);
    StepMetadata step = sound;
    spoil.apply(step);
    const auto found = of(step);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].tap, std::string(spoil.tap) + ".metadata");
    EXPECT_EQ(found[0].verdict, Verdict::kWrong);
    EXPECT_TRUE(found[0].note.starts_with(spoil.note)) << found[0].note;
    const auto blamed = blame(found);
    ASSERT_EQ(blamed.size(), 1u);
    EXPECT_NE(blamed[0].sentence().find("the metadata of the step"), std::string::npos);
  }
}

TEST_F(InputChecks, TheHiddenStateBeginsWithTheEmbedding) {
  const StepMetadata& step = session_->metadata();
  const Weights& weights = *session_->parts().weights;
  const std::int64_t hidden = session_->parts().config.hidden;
  std::vector<bf16_t> rows;
  for (const std::int32_t token : step.tokens) {
    const bf16_t* row = weights.embedding() + token * hidden;
    rows.insert(rows.end(), row, row + hidden);
  }
  const as_tensor h = make_tensor(rows.data(), {step.num_tokens_in_step(), hidden});
  EXPECT_FALSE(check_embedded(h, step, weights));
  at<bf16_t>(h, 25, 3)->bits ^= 1;
  const auto found = check_embedded(h, step, weights);
  ASSERT_TRUE(found);
  EXPECT_NE(found->note.find("token 25 (request 1, position 3)"), std::string::npos) << found->note;
}

TEST_F(InputChecks, ARotaryTableIsHeldAgainstTheAngles) {
  const SessionParts& parts = session_->parts();
  for (std::size_t layer = 0; layer < 2; ++layer) {
    as_rope rope = parts.ropes[layer];
    StepMetadata step;
    step.live = {0};
    for (std::int64_t p = 0; p < rope.table.shape[0]; ++p) {
      step.positions.push_back(p);
      step.token_to_req.push_back(0);
    }
    EXPECT_FALSE(check_rope(AS_OP_Q_ROPE_KV_INSERT, rope, step, *parts.exact, nullptr));
    std::vector<float> table(at<float>(rope.table),
                             at<float>(rope.table) + rope.table.shape[0] * AS_ROPE_DIM);
    rope.table = make_tensor(table.data(), {rope.table.shape[0], AS_ROPE_DIM});
    *at<float>(rope.table, 7, 2) += 1e-5f;
    const auto found = check_rope(AS_OP_Q_ROPE_KV_INSERT, rope, step, *parts.exact, nullptr);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->note.starts_with("token 7 (request 0, position 7), pair 2")) << found->note;
    EXPECT_EQ(found->introduced->beyond, 1);
    // The numbers of the other kind of layer.
    EXPECT_TRUE(check_rope(AS_OP_Q_ROPE_KV_INSERT, parts.ropes[1 - layer], step, *parts.exact,
                           nullptr) == std::nullopt);
    rope.table = parts.ropes[1 - layer].table;
    EXPECT_TRUE(check_rope(AS_OP_Q_ROPE_KV_INSERT, rope, step, *parts.exact, nullptr));
  }
}

// What is turned by a wrong table is its consequence; what is not is judged as ever.
TEST_F(InputChecks, AWrongTableTakesTheBlameOfWhatItTurns) {
  const auto wrong = [](as_op_id op, const char* tap) {
    TapResult result;
    result.op = op;
    result.tap = tap;
    result.verdict = Verdict::kWrong;
    return result;
  };
  const auto blamed =
      blame({wrong(AS_OP_Q_ROPE_KV_INSERT, "rope.table"), wrong(AS_OP_Q_ROPE_KV_INSERT, "q"),
             wrong(AS_OP_WO_B, "y"), wrong(AS_OP_INVERSE_ROPE, "out")});
  ASSERT_EQ(blamed.size(), 2u);
  EXPECT_NE(blamed[0].sentence().find("the rotary table"), std::string::npos);
  EXPECT_EQ(blamed[1].op, AS_OP_WO_B);
}

TEST_F(InputChecks, ATensorThatSomebodyWroteToIsNamed) {
  std::vector<bf16_t> h(64), y(64), out(64), next(64);
  const auto tensor = [](std::vector<bf16_t>& v) { return make_tensor(v.data(), {2, 32}); };
  OpParams first, second;
  auto& a = first.init<as_residual_params>(AS_OP_RESIDUAL);
  a.h = tensor(h);
  a.y = tensor(y);
  a.out = tensor(out);
  auto& b = second.init<as_residual_params>(AS_OP_RESIDUAL);
  b.h = tensor(out);
  b.y = tensor(y);
  b.out = tensor(next);
  StepMetadata step;
  step.live = {5};
  step.positions = {30, 31};
  step.token_to_req = {0, 0};
  Unchanged unchanged(nullptr);
  EXPECT_TRUE(unchanged.before(first, hash_inputs(first, nullptr), step).empty());
  unchanged.after(first, hash_inputs(first, nullptr));
  EXPECT_TRUE(unchanged.before(second, hash_inputs(second, nullptr), step).empty());
  out[40].bits ^= 1;
  const auto found = unchanged.before(second, hash_inputs(second, nullptr), step);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].tap, "h.changed");
  EXPECT_NE(found[0].note.find("when residual had run"), std::string::npos) << found[0].note;
  EXPECT_NE(blame(found)[0].sentence().find("what residual is fed"), std::string::npos);
  EXPECT_TRUE(found[0].note.starts_with("token 1 (request 5, position 31)")) << found[0].note;
  EXPECT_TRUE(unchanged.before(second, hash_inputs(second, nullptr), step).empty())
      << "once is enough";
  unchanged.begin_step();
  EXPECT_TRUE(unchanged.before(second, hash_inputs(second, nullptr), step).empty());
}

// Lists of the only group are written as [1, T, W] and read as [T, W].
TEST_F(InputChecks, AnotherShapeOfTheSameTensorIsNoChange) {
  std::vector<bf16_t> h(64), y(64), out(64), next(64);
  for (std::size_t i = 0; i < out.size(); ++i) out[i].bits = static_cast<std::uint16_t>(i * 37);
  OpParams first, second;
  auto& a = first.init<as_residual_params>(AS_OP_RESIDUAL);
  a.h = make_tensor(h.data(), {1, 2, 32});
  a.y = make_tensor(y.data(), {1, 2, 32});
  a.out = make_tensor(out.data(), {1, 2, 32});
  auto& b = second.init<as_residual_params>(AS_OP_RESIDUAL);
  b.h = make_tensor(out.data(), {2, 32});
  b.y = make_tensor(y.data(), {2, 32});
  b.out = make_tensor(next.data(), {2, 32});
  StepMetadata step;
  step.live = {5};
  step.positions = {30, 31};
  step.token_to_req = {0, 0};
  Unchanged unchanged(nullptr);
  unchanged.after(first, hash_inputs(first, nullptr));
  EXPECT_TRUE(unchanged.before(second, hash_inputs(second, nullptr), step).empty());
  std::swap(out[3], out[40]);  // the same values in other places
  EXPECT_EQ(unchanged.before(second, hash_inputs(second, nullptr), step).size(), 1u);
}

}  // namespace input_checks_test
}  // namespace attnscope
