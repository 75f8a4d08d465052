// Rotary tables that what-if puts in the place of a session's are as wide as the model's.
#include <gtest/gtest.h>

#include <vector>

#include "engine/family/models.h"
#include "engine/session/step/op_params.h"
#include "engine/session/what_if/what_if_changes.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace what_if_rotation_test {

// Of a dense model, whose heads turn 32 numbers.
TEST(WhatIfRotation, TakesTheWidthOfTheModel) {
  Scenario scenario = small_scenario(20, 2);
  scenario.model = *preset("tiny-llama");
  const auto session = small_session(References::kNone, scenario);
  const int dims = session->parts().config.rope_dim;
  ASSERT_EQ(dims, 32);
  do {
    ASSERT_TRUE(session->op());
  } while (session->last_params().op() != AS_OP_ROPE_KV_INSERT);
  OpParams still = session->last_params();
  const as_tensor before = rope_of(still)->table;
  ASSERT_EQ(before.shape[1], dims);
  ChangedInputs memory;
  ASSERT_TRUE(no_rotation(*session, still, memory));
  const as_tensor table = rope_of(still)->table;
  ASSERT_EQ(table.shape[0], before.shape[0]);
  ASSERT_EQ(table.shape[1], dims);
  for (std::int64_t row = 0; row < table.shape[0]; ++row) {
    for (std::int64_t i = 0; i < dims; ++i) {
      ASSERT_EQ(*at<float>(table, row, i), i < dims / 2 ? 1 : 0) << row << ", " << i;
    }
  }

  OpParams turned = session->last_params();
  ChangedInputs more;
  ASSERT_TRUE(yarn_turned(*session, turned, more));
  const as_rope& rope = *rope_of(turned);
  ASSERT_EQ(rope.table.shape[0], before.shape[0]);
  ASSERT_EQ(rope.table.shape[1], dims);
  std::vector<float> due(static_cast<std::size_t>(before.shape[0] * dims));
  cpu::build_rope_table(rope, before.shape[0], due.data(), nullptr, dims);
  EXPECT_EQ(more.floats, due);
}

}  // namespace what_if_rotation_test
}  // namespace attnscope
