// Numbers that texts about attention backends give as examples, and what they come to here: caches
// with and without a window, latent rows, prompts that begin alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/backend/attention_registry.h"
#include "tests/unit/engine/blocks_bench.h"

namespace attnscope {
namespace attention_examples_test {

std::int64_t elements(const char* backend, const CacheNumbers& numbers) {
  const AttentionRegistry backends;
  const auto shape = cache_shape(*backends.find(backend), numbers);
  EXPECT_TRUE(shape) << backend;
  return std::accumulate(shape->begin(), shape->end(), std::int64_t{1}, std::multiplies<>());
}

// A layer of Mistral 7B in bf16: 128 MiB for 32768 tokens, 16 MiB for a window of 4096. With all of
// its 32 layers a request takes 4 GiB or 512 MiB.
TEST(AttentionExamples, CacheOfALayerWithAndWithoutAWindow) {
  CacheNumbers n{32768 / 16, 16, 8, 128, 128, "auto"};
  for (const char* backend : {"FLASH_ATTN", "TRITON_ATTN", "FLASHINFER"}) {
    n.blocks = 32768 / 16;
    EXPECT_EQ(2 * elements(backend, n), std::int64_t{128} << 20) << backend;
    n.blocks = 4096 / 16;
    EXPECT_EQ(2 * elements(backend, n), std::int64_t{16} << 20) << backend;
  }
  EXPECT_EQ(32 * (std::int64_t{128} << 20), std::int64_t{4} << 30);
}

// A row has its 64 dims with RoPE beside 512 latent ones; packed with scales it has 656 bytes.
TEST(AttentionExamples, LatentRowsHave576Values) {
  CacheNumbers n{100, 64, 1, 576, 512, "auto"};
  EXPECT_EQ(elements("FLASHMLA", n), std::int64_t{100} * 64 * 576);
  n.cache_dtype = "fp8_ds_mla";
  EXPECT_EQ(elements("FLASHMLA_SPARSE", n), std::int64_t{100} * 64 * 656);
}

// Three prompts of 100 tokens that are the same, and 20, 30 and 10 of their own.
std::int64_t computed_tokens(std::int32_t block, std::int64_t hit) {
  using namespace blocks_test;
  Bench bench(options(CacheProfile::kM, {full(block)}, 400));
  std::int64_t computed = 0;
  bool first = true;
  for (const std::int32_t own : {20, 30, 10}) {
    KvRequest& request = bench.add(tokens(100) + tokens(own, 1000 * own));
    const Got got = bench.admit(request);
    EXPECT_TRUE(got.ok);
    EXPECT_EQ(got.hit, first ? 0 : hit);
    first = false;
    computed += 100 + own - got.hit;
  }
  return computed;
}

// 160 of 360 tokens are computed, 56 % saved, where every shared token is found; blocks of 16 share
// whole blocks alone, 96 tokens.
TEST(AttentionExamples, PromptsThatBeginAlike) {
  const std::int64_t all = 120 + 130 + 110;
  const std::int64_t single = computed_tokens(1, 100);
  EXPECT_EQ(single, 160);
  EXPECT_EQ((100 * (all - single) + all / 2) / all, 56);
  const std::int64_t blocks = computed_tokens(16, 96);
  EXPECT_EQ(blocks, 168);
  EXPECT_EQ((100 * (all - blocks) + all / 2) / all, 53);
}

// 64 KV heads of 128 in int8 with a scale and a zero point of two bytes each a head, K and V:
// 16,896 bytes for the 32,768 of fp16, 1.94 times fewer and not 4.
TEST(AttentionExamples, RowsInInt8AreNotAQuarter) {
  const CacheNumbers n{1, 1, 64, 128, 128, "auto"};
  const std::int64_t fp16 = 2 * elements("FLASH_ATTN", n);
  EXPECT_EQ(fp16, 32768);
  const std::int64_t int8 = elements("FLASH_ATTN", n) + 2 * n.kv_heads * 2 * 2;
  EXPECT_EQ(int8, 16896);
  EXPECT_NEAR(static_cast<double>(fp16) / static_cast<double>(int8), 1.94, 0.005);
}

// What a zero point is for: values between 5 and 6 have 255 steps with one and 21 without.
TEST(AttentionExamples, ScalesWithoutAZeroPointWasteCodes) {
  double with_zero = 0, without = 0;
  for (int i = 0; i <= 1000; ++i) {
    const double x = 5 + i / 1000.0;
    const double plain = 6 / 127.0, wide = 1 / 255.0;
    without = std::max(without, std::abs(std::round(x / plain) * plain - x));
    const double zero = std::round(-128 - 5 / wide);
    const double code = std::clamp(std::round(x / wide + zero), -128.0, 127.0);
    with_zero = std::max(with_zero, std::abs((code - zero) * wide - x));
  }
  EXPECT_GT(without, 10 * with_zero);
  EXPECT_LT(with_zero, 1 / 255.0);
}

}  // namespace attention_examples_test
}  // namespace attnscope
