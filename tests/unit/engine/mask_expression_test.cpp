// Masks and score functions as text: what they compute, which tiles they make, what is refused.
#include "engine/model/mask_expression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "engine/backend/block_mask.h"
#include "kernels/cpu/mask_code.h"

namespace attnscope {
namespace mask_expression_test {

double value_of(const std::string& text, const cpu::MaskPlace& place = {}, double score = 0) {
  const auto code = parse_score(text);
  EXPECT_TRUE(code) << text << ": " << code.error().text();
  return code ? cpu::run_mask_code(code->tensor(), place, score) : 0;
}

TEST(MaskExpression, ComputesAsItIsWritten) {
  EXPECT_EQ(value_of("1 + 2 * 3 - 4 / 8"), 6.5);
  EXPECT_EQ(value_of("7 // 2 + 7 % 4 + (0 - 7) // 2 + -7 % 4"), 3 + 3 - 4 + 1);
  EXPECT_EQ(value_of("1 < 2 && 2 <= 2 && !(3 > 4) || 0"), 1);
  EXPECT_EQ(value_of("0 ? 1 : 2 ? 3 : 4"), 3);
  EXPECT_EQ(value_of("min(3, max(1, 2)) + abs(-5) + floor(2.75) + exp2(3)"), 2 + 5 + 2 + 8);
  EXPECT_EQ(value_of("!!5 + !0 + (1 != 1) + (2 == 2)"), 3);
  EXPECT_EQ(value_of("10 * q_idx + kv_idx - 100 * head + 1000 * request", {3, 4, 5, 6}), 5534);
  EXPECT_EQ(value_of("soft_cap(2)", {}, 3), 2 * std::tanh(1.5));
  EXPECT_EQ(value_of("alibi(8)", {9, 4, 3, 0}, 1), 1 - std::exp2(-4.0) * 5);
  EXPECT_EQ(value_of("0 / 0 ? 1 : 2"), 2) << "what is no number is false";
}

TEST(MaskExpression, NamedMasksAreWhatTheyAreCalled) {
  const std::map<std::string, std::function<bool(int, int)>> named = {
      {"causal", [](int q, int k) { return k <= q; }},
      {"sliding(3)", [](int q, int k) { return k <= q && k > q - 3; }},
      {"prefix_lm(4)", [](int q, int k) { return k < 4 || k <= q; }},
      {"document(5, 8)",
       [](int q, int k) {
         const auto of = [](int i) { return i < 5 ? 0 : i < 8 ? 1 : 2; };
         return of(q) == of(k);
       }},
      {"sliding(3) || kv_idx < 2 && causal",
       [](int q, int k) { return k <= q && (k > q - 3 || k < 2); }},
  };
  for (const auto& [text, sees] : named) {
    const auto code = parse_mask(text);
    ASSERT_TRUE(code) << text;
    for (int q = 0; q < 12; ++q) {
      for (int k = 0; k < 12; ++k) {
        EXPECT_EQ(cpu::mask_shows(code->tensor(), {q, k, 0, 0}), sees(q, k))
            << text << ' ' << q << ' ' << k;
      }
    }
  }
}

TEST(MaskExpression, SaysWhereItIsWrong) {
  const auto refused = [](const std::string& text, const std::string& what) {
    const auto code = parse_mask(text);
    ASSERT_FALSE(code) << text;
    EXPECT_EQ(code.error().code, AS_BAD_INPUT);
    EXPECT_NE(code.error().message.find(what), std::string::npos) << code.error().message;
    EXPECT_FALSE(code.error().hint.empty()) << text;
  };
  refused("", "column 1: the end where a value is due");
  refused("kv_idx <= q", "column 11: \"q\" is no name");
  refused("kv_idx <= q_idx)", "column 16: \")\" is not expected");
  refused("1 < 2 < 3", "column 7: \"<\" is not expected");
  refused("sliding(q_idx)", "column 9: \"q\" where sliding takes a number");
  refused("sliding(0)", "column 1: sliding takes one number above 0");
  refused("min(1)", "column 6: \")\" where \",\" is due");
  refused("score > 0", "column 1: a mask has no score");
  refused("soft_cap(2)", "column 1: soft_cap is a score function");
  refused("1 ? 2", "column 6: the end where \":\" is due");
  refused("1e999", "begins no finite number");
  refused("kv_idx \xff 2", "column 8: byte 0xff");
  refused(std::string(100, '(') + "1" + std::string(100, ')'), "parentheses inside one another");
  refused(std::string(100, '-') + "1", "one behind the other");
  std::string deep = "1";
  for (int i = 0; i < 40; ++i) deep.insert(0, "1 + (").append(")");
  refused(deep, "values at once");
  std::string wide = "1";
  for (int i = 0; i < 300; ++i) wide += " + 1";
  refused(wide, "more than 512 instructions");
}

TEST(BlockMask, CountsTilesAsElementsSay) {
  const auto mask = parse_mask("sliding(100)");
  const MaskedSequence sequences[] = {{150, 150}, {40, 200}, {0, 5}};
  const BlockMask tiles(*mask, sequences, 4);
  EXPECT_EQ(tiles.maps(), 1) << "it asks for no head";
  BlockMask::Counts right;
  for (std::size_t n = 0; n < 3; ++n) {
    const std::int64_t queries = sequences[n].queries, keys = sequences[n].keys;
    for (std::int64_t b = 0; b * 32 < queries; ++b) {
      for (std::int64_t k = 0; k * 64 < keys; ++k) {
        std::int64_t seen = 0, all = 0;
        for (std::int64_t i = 32 * b; i < std::min<std::int64_t>(32 * b + 32, queries); ++i) {
          for (std::int64_t j = 64 * k; j < std::min<std::int64_t>(64 * k + 64, keys); ++j) {
            const std::int64_t place = keys - queries + i;
            seen += j <= place && place - j < 100 ? 1 : 0;
            ++all;
          }
        }
        const as_mask_tile due = seen == 0     ? AS_TILE_EMPTY
                                 : seen == all ? AS_TILE_FULL
                                               : AS_TILE_PARTIAL;
        EXPECT_EQ(tiles.tile(static_cast<std::int64_t>(n), 0, b, k), due) << n << b << k;
        right.empty += seen == 0 ? 1 : 0;
        right.full += seen == all ? 1 : 0;
        right.seen += seen;
      }
    }
  }
  EXPECT_EQ(tiles.counts().empty, right.empty);
  EXPECT_EQ(tiles.counts().full, right.full);
  EXPECT_EQ(tiles.counts().seen, right.seen);
  EXPECT_GT(right.empty, 0);
  EXPECT_GT(right.full, 0);
}

TEST(BlockMask, IsDrawnAndHasAMapAHead) {
  const auto causal = parse_mask("causal");
  const MaskedSequence sequence{128, 128};
  EXPECT_EQ(BlockMask(*causal, {&sequence, 1}, 2).drawing(0, 0), "+.\n+.\n#+\n#+\n");
  const auto by_head = parse_mask("head == 0 ? causal : 1");
  const BlockMask tiles(*by_head, {&sequence, 1}, 2);
  EXPECT_EQ(tiles.maps(), 2);
  EXPECT_EQ(tiles.drawing(0, 1), "##\n##\n##\n##\n");
}

}  // namespace mask_expression_test
}  // namespace attnscope
