// Frequencies against printed values, and the fp32 table.
#include <algorithm>
#include <iterator>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace rope_table_test {

as_rope numbers(double base, double factor) {
  as_rope rope{};
  rope.base = base;
  rope.factor = factor;
  rope.original_max_pos = 65536.0;
  rope.beta_fast = 32.0;
  rope.beta_slow = 1.0;
  return rope;
}

void expect_close(double value, double printed) {
  EXPECT_NEAR(value / printed, 1.0, 1e-7) << printed;  // printed to 8 digits
}

TEST(RopeFrequencies, CompressedLayers) {
  const double printed[32] = {
      1.0000000e+00, 6.8765602e-01, 4.7287080e-01, 3.2517246e-01, 2.2360680e-01, 1.5376456e-01,
      1.0573713e-01, 7.2710772e-02, 5.0000000e-02, 3.4382801e-02, 2.3643540e-02, 1.6258623e-02,
      1.1180340e-02, 7.6882281e-03, 5.2868563e-03, 3.6355386e-03, 2.2656250e-03, 1.3968013e-03,
      8.4968973e-04, 5.0808196e-04, 2.9697778e-04, 1.6817999e-04, 9.0867843e-05, 4.5444232e-05,
      1.9531250e-05, 5.3723127e-06, 3.6943032e-06, 2.5404098e-06, 1.7469281e-06, 1.2012856e-06,
      8.2607130e-07, 5.6805290e-07};
  const std::vector<double> f = cpu::rope_frequencies(numbers(160000.0, 16.0));
  ASSERT_EQ(f.size(), 32u);
  for (std::size_t i = 0; i < 32; ++i) expect_close(f[i], printed[i]);
}

TEST(RopeFrequencies, PlainLayers) {
  const double printed[8] = {1.0000000e+00, 7.4989421e-01, 5.6234133e-01, 4.2169650e-01,
                             3.1622777e-01, 2.3713737e-01, 1.7782794e-01, 1.3335214e-01};
  const std::vector<double> f = cpu::rope_frequencies(numbers(10000.0, 1.0));
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t decade = i / 8;
    expect_close(f[i], printed[i % 8] * std::pow(10.0, -static_cast<double>(decade)));
  }
}

TEST(RopeFrequencies, YarnOnPlainLayers) {
  const std::vector<double> f = cpu::rope_frequencies(numbers(10000.0, 16.0));
  const std::vector<double> plain = cpu::rope_frequencies(numbers(10000.0, 1.0));
  for (std::size_t i = 0; i <= 20; ++i) EXPECT_DOUBLE_EQ(f[i], plain[i]);
  expect_close(f[21], 2.2003612e-03);
  expect_close(f[24], 7.1153846e-04);
  expect_close(f[31], 2.7567991e-05);
}

TEST(RopeTable, HoldsCosThenSinOfTheFp32Angle) {
  const Rope rope(3000);
  const std::vector<double> f = cpu::rope_frequencies(rope.view());
  for (std::int64_t t : {0, 1, 700, 2999}) {
    const float* row = at<float>(rope.view().table, t);
    for (std::size_t i = 0; i < 32; ++i) {
      const float angle = static_cast<float>(t) * static_cast<float>(f[i]);
      EXPECT_EQ(row[i], static_cast<float>(std::cos(static_cast<double>(angle))));
      EXPECT_EQ(row[32 + i], static_cast<float>(std::sin(static_cast<double>(angle))));
    }
  }
}

TEST(RopeTable, SameForAnyNumberOfThreads) {
  as_rope rope = numbers(160000.0, 16.0);
  std::vector<float> alone(1000 * 64), shared(1000 * 64);
  cpu::build_rope_table(rope, 1000, alone.data(), nullptr);
  cpu::ThreadPool pool(3);
  cpu::build_rope_table(rope, 1000, shared.data(), pool.handle());
  EXPECT_EQ(alone, shared);
}

}  // namespace rope_table_test
}  // namespace attnscope::kernel_tests
