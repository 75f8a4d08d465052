// varlen_attention under masks and score functions: the same bytes with the block mask as without
// it, where every element is asked, and what both references compute, which know no tiles.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/backend/block_mask.h"
#include "kernels/params/paged_params.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

std::vector<std::int32_t> begins(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> starts = {0};
  for (const std::int64_t n : lengths) starts.push_back(starts.back() + static_cast<int>(n));
  return starts;
}

}  // namespace

Report check_masked(const Lane& lane, const MaskCase& c) {
  Report report(case_seed("mask " + c.name));
  Random random(report.seed());
  Memory memory;
  constexpr std::int64_t kHeads = 4, kKvHeads = 2, kSize = 64;
  const std::vector<std::int32_t> starts = begins(c.queries), key_starts = begins(c.keys);
  const auto count = static_cast<std::int64_t>(starts.size());
  MaskCode mask, score;
  if (!c.mask.empty()) mask = *parse_mask(c.mask);
  if (!c.score.empty()) score = *parse_score(c.score);
  std::vector<MaskedSequence> sequences;
  for (std::size_t n = 0; n < c.queries.size(); ++n) sequences.push_back({c.queries[n], c.keys[n]});
  const BlockMask tiles(mask.instructions.empty() ? *parse_mask("1") : mask, sequences, kHeads);

  OpParams engine;
  auto& p = engine.init<as_varlen_attention_params>(AS_OP_VARLEN_ATTENTION);
  p.q = memory.normals(AS_BF16, {starts.back(), kHeads, kSize}, random);
  p.k = memory.normals(AS_BF16, {key_starts.back(), kKvHeads, kSize}, random);
  p.v = memory.normals(AS_BF16, {key_starts.back(), kKvHeads, kSize}, random);
  p.cu_seqlens = memory.ints(starts, {count});
  p.cu_seqlens_k = memory.ints(key_starts, {count});
  p.o = memory.make(AS_BF16, {starts.back(), kHeads, kSize}, 5);
  p.lse = memory.make(AS_F32, {starts.back(), kHeads}, 1);
  p.scale = 0.125;
  p.causal = c.causal;
  p.window_left = p.window_right = -1;
  p.mask_code = mask.tensor();
  p.score_code = score.tensor();
  if (!mask.instructions.empty()) p.tiles = tiles.tensor();
  if (!run(lane, engine, &report)) return report;

  OpParams dense = engine;
  dense.get<as_varlen_attention_params>().tiles = no_tensor();
  dense.get<as_varlen_attention_params>().o =
      memory.make(AS_BF16, {starts.back(), kHeads, kSize}, 5);
  dense.get<as_varlen_attention_params>().lse = memory.make(AS_F32, {starts.back(), kHeads}, 1);
  if (!run(lane, dense, &report)) return report;
  const auto& d = dense.get<as_varlen_attention_params>();
  for (std::int64_t t = 0; t < starts.back(); ++t) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const std::string place = fmt::format("token {}, head {}: other bytes without tiles", t, h);
      if (std::memcmp(at<bf16_t>(p.o, t, h), at<bf16_t>(d.o, t, h), kSize * 2) != 0) {
        report.fail("o", place);
      }
      const auto bits = [&](const as_tensor& lse) {
        return std::bit_cast<std::uint32_t>(*at<float>(lse, t, h));
      };
      if (bits(p.lse) != bits(d.lse)) {
        report.fail("lse", place);
      }
    }
  }
  OpParams sim = with_own_outputs(engine, &memory);
  if (!run(*reference::sim_lane(), sim, &report)) return report;
  judge_all(engine, sim, &report);
  return report;
}

std::vector<MaskCase> mask_cases() {
  return {
      {"causal", "causal", "", {150, 1, 33}, {150, 1, 33}},
      {"sliding", "sliding(40)", "", {200, 7}, {200, 90}},
      {"prefix_lm", "prefix_lm(70)", "", {190}, {190}},
      {"documents", "document(30, 64, 129)", "", {200}, {200}},
      {"holes", "kv_idx % 3 != q_idx % 2", "", {70, 40}, {140, 40}},
      {"by_head", "head % 2 == 0 ? sliding(20) : kv_idx % 5 == 0", "", {130}, {130}},
      {"by_request", "request == 1 ? kv_idx >= q_idx : causal", "", {60, 100}, {60, 100}},
      {"nothing", "0", "", {40, 3}, {40, 3}},
      {"rows_that_see_nothing", "q_idx % 4 != 1 && causal", "", {100}, {100}},
      {"beside_causal", "kv_idx < 10 || q_idx - kv_idx < 33", "", {150}, {180}, 1},
      {"alibi", "causal", "alibi(4)", {90, 20}, {90, 20}},
      {"soft_cap", "sliding(64)", "soft_cap(3)", {120}, {120}},
      {"score_alone", "", "score + (head - 1) * 0.25 * (kv_idx % 7)", {80}, {95}},
  };
}

namespace {

class MaskProperty : public testing::TestWithParam<MaskCase> {};

TEST_P(MaskProperty, TilesChangeNoByteAndReferencesAgree) {
  const Report report = check_masked(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(Masks, MaskProperty, testing::ValuesIn(mask_cases()), name_of<MaskCase>);

// A tile that is said to hide all is left out, whatever the mask says of it: so wrong tiles show.
TEST(MaskTiles, WrongOnesAreSeen) {
  Random random(3);
  Memory memory;
  const MaskCode mask = *parse_mask("causal");
  const MaskedSequence sequence{100, 100};
  const BlockMask tiles(mask, {&sequence, 1}, 1);
  OpParams engine;
  auto& p = engine.init<as_varlen_attention_params>(AS_OP_VARLEN_ATTENTION);
  p.q = memory.normals(AS_BF16, {100, 1, 32}, random);
  p.k = memory.normals(AS_BF16, {100, 1, 32}, random);
  p.v = memory.normals(AS_BF16, {100, 1, 32}, random);
  p.cu_seqlens = memory.ints({0, 100}, {2});
  p.o = memory.make(AS_BF16, {100, 1, 32}, 5);
  p.lse = memory.make(AS_F32, {100, 1}, 1);
  p.scale = 0.2;
  p.window_left = p.window_right = -1;
  p.mask_code = mask.tensor();
  for (const auto& [tile, state] : {std::pair{4, AS_TILE_EMPTY}, {0, AS_TILE_FULL}}) {
    std::vector<std::uint8_t> wrong;
    for (int b = 0; b < 4; ++b) {
      for (int k = 0; k < 2; ++k)
        wrong.push_back(static_cast<std::uint8_t>(tiles.tile(0, 0, b, k)));
    }
    wrong[static_cast<std::size_t>(tile)] = static_cast<std::uint8_t>(state);
    p.tiles = make_tensor(wrong.data(), {1, 1, 4, 2});
    Report report(5);
    ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
    OpParams sim = with_own_outputs(engine, &memory);
    ASSERT_TRUE(run(*reference::sim_lane(), sim, &report)) << report;
    judge_all(engine, sim, &report);
    EXPECT_FALSE(report.ok()) << "tile " << tile;
  }
}

}  // namespace
}  // namespace attnscope::properties
