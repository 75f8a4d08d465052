// The sum over ranks against what the ranks gave.
#include "engine/session/verify/sum_watch.h"
#include "kernels/cpu/codec.h"
#include "kernels/params/tensor_view.h"
#include "tests/blame/planted_around.h"

namespace attnscope {
namespace rank_sums_test {

Scenario two_ranks() {
  Scenario scenario = tiny_scenario(7, 150);
  scenario.parallel = {2, 1};
  return scenario;
}

TEST(RankSums, AWrongSumIsNamed) {
  static int layers;
  static const BetweenOps kHalved = {.summed = [](const as_tensor& y) {
    if (++layers == 5) at<bf16_t>(y, 3, 7)->bits ^= 0x80;
  }};
  layers = 0;
  expect_blamed(
      run_with(two_ranks(), kHalved), 1, 1, AS_OP_WO_B, "y.sum",
      {"the sum over ranks", "token 3, column 7: ", "the parts of 2 ranks add up to", "1 of "});
}

TEST(RankSums, ASoundSumIsNotAccused) {
  static const BetweenOps kNothing;
  for (const char* profile : {"vllm", "vllm,projections=fp8"}) {
    Scenario scenario = two_ranks();
    scenario.model.switches = *profile_switches(profile);
    EXPECT_EQ(run_with(scenario, kNothing).summary.count(Verdict::kWrong), 0) << profile;
  }
}

// Parts of a layer with these weights, by hand.
TEST(RankSums, ARankThatIsLeftOutOrAddedTwiceIsNamed) {
  auto session = session_of(two_ranks());
  const SessionParts& parts = session->parts();
  std::vector<bf16_t> one(8, {cpu::float_to_bf16(1)}), two(8, {cpu::float_to_bf16(2)});
  const auto part = [&](SumWatch& sums, std::size_t rank, int layer = 0) {
    as_linear_params params{};
    params.weight = parts.ranks[rank]->find(layer, "wo_b").tensor();
    params.y = make_tensor(one.data(), {2, 4});
    sums.part(0, params);
  };
  SumWatch sums(parts);
  const as_tensor ones = make_tensor(one.data(), {2, 4}), twos = make_tensor(two.data(), {2, 4});
  part(sums, 0);
  part(sums, 1);
  EXPECT_FALSE(sums.summed(0, twos));
  part(sums, 0);
  part(sums, 1);
  auto found = sums.summed(0, ones);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->introduced->beyond, 8);
  part(sums, 1);
  found = sums.summed(0, ones);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->note.starts_with("rank 0 gave 0 parts")) << found->note;
  part(sums, 0);
  part(sums, 0);
  found = sums.summed(0, twos);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->note.starts_with("rank 0 gave 2 parts")) << found->note;
  part(sums, 0);
  part(sums, 1, 2);  // of another layer
  found = sums.summed(0, twos);
  ASSERT_TRUE(found);
  EXPECT_NE(found->note.find("a weight that is no rank's there"), std::string::npos);
}

}  // namespace rank_sums_test
}  // namespace attnscope
