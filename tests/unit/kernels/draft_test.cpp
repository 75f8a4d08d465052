// What a draft layer begins with, against float64.
#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace draft_test {

struct Call {
  explicit Call(std::int64_t tokens, std::int64_t width)
      : hidden({tokens, width}),
        embedding({16, width}),
        h_weight({width}),
        e_weight({width}),
        h({tokens, width}),
        e({tokens, width}),
        next({tokens}),
        positions({tokens}) {
    Random random(static_cast<std::uint64_t>(width));
    fill_normal(hidden, random, 3.0f);
    fill_normal(embedding, random, 0.1f);
    fill_normal(h_weight, random);
    fill_normal(e_weight, random);
    for (std::int64_t t = 0; t < tokens; ++t) {
      next[t] = static_cast<std::int32_t>((5 * t + 3) % 16);
      positions[t] = t + 1;
    }
  }
  as_draft_norm_params params() {
    auto p = make_params<as_draft_norm_params>();
    p.hidden = hidden.tensor;
    p.embedding = embedding.tensor;
    p.tokens = next.tensor;
    p.positions = positions.tensor;
    p.h_weight = h_weight.tensor;
    p.e_weight = e_weight.tensor;
    p.h = h.tensor;
    p.e = e.tensor;
    p.eps = 1e-6;
    return p;
  }

  Array<bf16_t> hidden, embedding, h_weight, e_weight, h, e;
  Array<std::int32_t> next;
  Array<std::int64_t> positions;
};

// y is the norm of x times w, within a step of bf16.
void expect_norm(const bf16_t* x, const bf16_t* w, const bf16_t* y, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::pow(static_cast<double>(to_float(x[i])), 2);
  const double factor = 1 / std::sqrt(sum / static_cast<double>(n) + 1e-6);
  for (std::int64_t i = 0; i < n; ++i) {
    const double exact =
        static_cast<double>(to_float(x[i])) * factor * static_cast<double>(to_float(w[i]));
    ASSERT_LE(bf16_steps(y[i], exact), 1) << i;
  }
}

TEST(DraftNorm, NormsTheHiddenStateAndTheEmbeddingOfTheTokenBehind) {
  for (const std::int64_t width : {1, 64, 512, 1031}) {
    Call call(7, width);
    EXPECT_OK(run(AS_OP_DRAFT_NORM, call.params()));
    for (std::int64_t t = 0; t < 7; ++t) {
      SCOPED_TRACE(t);
      expect_norm(&call.hidden[t * width], &call.h_weight[0], &call.h[t * width], width);
      expect_norm(&call.embedding[call.next[t] * width], &call.e_weight[0], &call.e[t * width],
                  width);
    }
  }
}

TEST(DraftNorm, NothingIsEmbeddedAtTheFirstPositionAndBehindTheLastToken) {
  Call call(3, 64);
  call.positions[0] = 0;
  call.next[2] = -1;
  EXPECT_OK(run(AS_OP_DRAFT_NORM, call.params()));
  for (std::int64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(call.e[i].bits, 0);
    EXPECT_EQ(call.e[2 * 64 + i].bits, 0);
  }
  expect_norm(&call.embedding[call.next[1] * 64], &call.e_weight[0], &call.e[64], 64);
  for (std::int64_t t = 0; t < 3; ++t) {
    expect_norm(&call.hidden[t * 64], &call.h_weight[0], &call.h[t * 64], 64);
  }
}

TEST(DraftNorm, RefusesWhatDoesNotFit) {
  Call call(3, 64);
  call.next[1] = 16;
  EXPECT_REFUSED(run(AS_OP_DRAFT_NORM, call.params()),
                 "token 1 is 16; the embedding has rows 0 to 15");
  call.next[1] = 15;
  auto p = call.params();
  p.e_weight.shape[0] = 63;
  EXPECT_REFUSED(run(AS_OP_DRAFT_NORM, p), "e_weight");
  p = call.params();
  p.tokens.shape[0] = 2;
  EXPECT_REFUSED(run(AS_OP_DRAFT_NORM, p), "tokens");
  p = call.params();
  p.embedding = no_tensor();
  EXPECT_REFUSED(run(AS_OP_DRAFT_NORM, p), "embedding");
}

}  // namespace draft_test
}  // namespace attnscope::kernel_tests
