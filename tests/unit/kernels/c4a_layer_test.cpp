// A whole layer: same bytes for any number of threads; planted bugs change
// nothing before their op.
#include "tests/unit/kernels/c4a_layer.h"

#include "kernels/mutants/mutants.h"

namespace attnscope::kernel_tests {
namespace c4a_layer_test {

TEST(C4aLayer, SameBytesForAnyNumberOfThreads) {
  const C4aLayer alone;
  for (int threads : {1, 2, 3, 7}) {
    cpu::ThreadPool pool(threads);
    const C4aLayer shared(pool.handle());
    ASSERT_EQ(shared.outputs().size(), alone.outputs().size());
    for (std::size_t i = 0; i < alone.outputs().size(); ++i) {
      EXPECT_TRUE(shared.outputs()[i].second == alone.outputs()[i].second)
          << as_op_find(alone.outputs()[i].first)->name << " with " << threads << " threads";
    }
  }
}

class Mutant : public ::testing::TestWithParam<std::size_t> {};

// That each one shows, where it is to show, is what the tests of blame say.
TEST_P(Mutant, ChangesNothingBeforeItsOp) {
  const Lane& mutant = mutants::lanes()[GetParam()];
  EXPECT_EQ(std::string(mutant.name).find("mutant:"), 0u);
  EXPECT_NE(std::string(mutant.description), "");
  EXPECT_EQ(mutant.ops.count(), 1);
  const C4aLayer right;
  const C4aLayer wrong(nullptr, &mutant);
  for (std::size_t i = 0; i < right.outputs().size(); ++i) {
    const as_op_id op = right.outputs()[i].first;
    if (mutant.ops[op] != nullptr) return;
    ASSERT_TRUE(wrong.outputs()[i].second == right.outputs()[i].second)
        << mutant.name << " at " << as_op_find(op)->name;
  }
}

TEST_P(Mutant, RefusesBadParamsLikeTheRightOp) {
  const Lane& mutant = mutants::lanes()[GetParam()];
  for (std::int32_t op = 0; op < AS_OP_COUNT; ++op) {
    if (mutant.ops[op] == nullptr) continue;
    std::vector<unsigned char> bytes(as_op_find(op)->params_size, 0);
    as_error error{};
    EXPECT_EQ(mutant.ops[op](nullptr, nullptr, &error), AS_BAD_INPUT);
    EXPECT_EQ(mutant.ops[op](bytes.data(), nullptr, &error), AS_BAD_INPUT);
    const as_params_head head = {as_op_find(op)->params_size, AS_PARAMS_VERSION};
    std::memcpy(bytes.data(), &head, sizeof(head));
    EXPECT_EQ(mutant.ops[op](bytes.data(), nullptr, &error), AS_BAD_INPUT);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Mutant, ::testing::Range<std::size_t>(0, mutants::lanes().size()),
                         [](const ::testing::TestParamInfo<std::size_t>& lane) {
                           return std::string(mutants::lanes()[lane.param].name).substr(7);
                         });

TEST(Mutants, TheNamedOnesExist) {
  for (const char* name :
       {"mutant:window_off_by_one", "mutant:topk_one_short", "mutant:scale_rounded_down"}) {
    EXPECT_TRUE(std::any_of(mutants::lanes().begin(), mutants::lanes().end(),
                            [&](const Lane& lane) { return std::string(lane.name) == name; }))
        << name;
  }
}

}  // namespace c4a_layer_test
}  // namespace attnscope::kernel_tests
