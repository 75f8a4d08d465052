// The two implementations of rotary frequencies and tables, of kernels and of references: the same
// bits, and in fp32 those that torch gives.
#include <bit>
#include <map>

#include "kernels/cpu/rope_table.h"
#include "reference/rope.h"
#include "tests/property/harness.h"

namespace attnscope::properties {
namespace rope_tables_property_test {

as_rope numbers(double base, double factor, std::int32_t frequencies) {
  as_rope rope{};
  rope.base = base;
  rope.factor = factor;
  rope.original_max_pos = 65536;
  rope.beta_fast = 32;
  rope.beta_slow = 1;
  rope.table.reserved = frequencies;
  return rope;
}

TEST(RopeTables, AreTheSameInKernelsAndReferences) {
  constexpr std::int64_t kRows = 3000;
  std::vector<float> table(kRows * AS_ROPE_DIM);
  for (const std::int32_t frequencies : {AS_ROPE_FP64, AS_ROPE_FP32}) {
    for (const double base : {10000.0, 160000.0, 5e5, 12345.0}) {
      for (const double factor : {1.0, 16.0, 40.0, 3.0}) {
        const as_rope rope = numbers(base, factor, frequencies);
        cpu::build_rope_table(rope, kRows, table.data(), nullptr);
        const auto f = reference::rope_frequencies(rope);
        for (std::int64_t t = 0; t < kRows; t += 13) {
          const reference::RopeRow row = reference::rope_row(f, t, false);
          for (std::size_t i = 0; i < 32; ++i) {
            const float* own = table.data() + t * AS_ROPE_DIM;
            ASSERT_EQ(static_cast<double>(own[i]), row.cos[i]) << base << " " << factor << " " << t;
            ASSERT_EQ(static_cast<double>(own[32 + i]), row.sin[i]) << base << " " << factor;
          }
        }
      }
    }
  }
}

// Published tables of base 160000 with YaRN 16 differ from float64 rounded to fp32 in these pairs,
// by so many steps.
TEST(RopeTables, Fp32FrequenciesAreThoseThatAreServed) {
  const std::map<int, int> steps = {{6, 1},  {14, 1}, {21, 1}, {24, 2}, {25, 1},
                                    {26, 1}, {27, 1}, {28, 1}, {31, 1}};
  const auto fp32 = cpu::rope_frequencies(numbers(160000, 16, AS_ROPE_FP32));
  const auto fp64 = cpu::rope_frequencies(numbers(160000, 16, AS_ROPE_FP64));
  for (int i = 0; i < 32; ++i) {
    const double f = fp32[static_cast<std::size_t>(i)];
    ASSERT_EQ(f, static_cast<double>(static_cast<float>(f)));
    const auto a = std::bit_cast<std::int32_t>(static_cast<float>(f));
    const auto b =
        std::bit_cast<std::int32_t>(static_cast<float>(fp64[static_cast<std::size_t>(i)]));
    const auto at = steps.find(i);
    EXPECT_EQ(std::abs(a - b), at == steps.end() ? 0 : at->second) << "pair " << i;
  }
}

}  // namespace rope_tables_property_test
}  // namespace attnscope::properties
