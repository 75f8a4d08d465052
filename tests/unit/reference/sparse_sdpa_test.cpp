// Attention to listed rows as a program without sparse kernels has it: what the benchmark holds the
// CPU lane against does the same work. Its products in bf16 are a library's below libtorch, which
// asks for memory by a way of its own (kept_memory.h).
#include "reference/torch/sparse_sdpa.h"

#include <numeric>
#include <random>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/layout/records.h"
#include "reference/torch_module.h"
#include "tests/unit/reference/lane_test.h"

namespace attnscope::reference {
namespace sparse_sdpa_test {

TEST(SparseSdpa, IsTheAttentionOfTheCpuLane) {
  constexpr std::int64_t kTokens = 4, kHeads = 64, kWindow = 128, kMore = 256, kRows = 64;
  constexpr std::int64_t kBlocks = 8, kPage = 37440;
  std::mt19937_64 random(7);
  const auto number = [&] { return static_cast<float>(random() >> 40) * 0x1p-23f - 1; };
  std::vector<std::uint8_t> bytes(kBlocks * kPage);
  as_cache cache{};
  cache.data = make_tensor(bytes.data(), {kBlocks, kPage});
  cache.record = AS_RECORD_LATENT;
  cache.rows_per_block = kRows;
  cache.width = AS_HEAD_DIM;
  for (std::int64_t slot = 0; slot < kBlocks * kRows; ++slot) {
    const as_row_address row = as_cache_row(&cache, slot);
    for (int d = 0; d < AS_NOPE_DIM; ++d) row.payload[d] = cpu::float_to_e4m3(number());
    for (int i = 0; i < AS_QUANT_BLOCKS; ++i)
      row.scales[i] = static_cast<std::uint8_t>(126 + i % 3);
    for (int d = 0; d < AS_ROPE_DIM; ++d) {
      const std::uint16_t value = cpu::float_to_bf16(number());
      std::memcpy(row.payload + AS_NOPE_DIM + 2 * d, &value, 2);
    }
  }
  std::vector<bf16_t> q(kTokens * kHeads * AS_HEAD_DIM), o(q.size());
  for (bf16_t& v : q) v.bits = cpu::float_to_bf16(number());
  std::vector<std::int32_t> near(kTokens * kWindow), far(kTokens * kMore);
  for (std::int32_t& slot : near) slot = static_cast<std::int32_t>(random() % (kBlocks * kRows));
  for (std::int32_t& slot : far) slot = static_cast<std::int32_t>(random() % (kBlocks * kRows));
  const std::vector<std::int32_t> near_lens(kTokens, kWindow), far_lens(kTokens, kMore);
  std::vector<float> sinks(kHeads), lse(kTokens * kHeads);
  std::iota(sinks.begin(), sinks.end(), -30.0f);
  auto p = new_params<as_sparse_attention_params>();
  p.q = make_tensor(q.data(), {kTokens, kHeads, AS_HEAD_DIM});
  p.cache = p.extra_cache = cache;
  p.indices = make_tensor(near.data(), {kTokens, kWindow});
  p.topk_length = make_tensor(near_lens.data(), {kTokens});
  p.extra_indices = make_tensor(far.data(), {kTokens, kMore});
  p.extra_topk_length = make_tensor(far_lens.data(), {kTokens});
  p.sinks = make_tensor(sinks.data(), {kHeads});
  p.o = make_tensor(o.data(), {kTokens, kHeads, AS_HEAD_DIM});
  p.lse = make_tensor(lse.data(), {kTokens, kHeads});
  p.scale = 0.05;
  as_error error{};
  ASSERT_EQ(cpu::lane()->ops[AS_OP_SPARSE_ATTENTION](&p, nullptr, &error), AS_OK) << error.message;
  const std::vector<bf16_t> ours = o;
  for (const bool fp32 : {true, false}) {
    std::fill(o.begin(), o.end(), bf16_t{0x7fc0});
    TorchFailure failure{};
    ASSERT_TRUE(torch_module().sparse_sdpa(&p, fp32, &failure)) << failure.message;
    double wrong = 0, all = 0;
    for (std::size_t i = 0; i < o.size(); ++i) {
      const double mine = double{cpu::bf16_to_float(ours[i].bits)};
      const double difference = mine - double{cpu::bf16_to_float(o[i].bits)};
      wrong += difference * difference;
      all += mine * mine;
    }
    EXPECT_LT(std::sqrt(wrong / all), fp32 ? 3e-3 : 2e-2) << fp32;
  }
}

}  // namespace sparse_sdpa_test
}  // namespace attnscope::reference
