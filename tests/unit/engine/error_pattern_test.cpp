// What is said of errors that are put into an output by hand: each relation and each place alone,
// and nothing of the kind where there is none.
#include "engine/explain/error_pattern.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "engine/explain/error_places.h"
#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace error_pattern_test {

constexpr std::int64_t kTokens = 6, kHeads = 8, kDims = 32;

// An output [T,H,D] that is right until somebody spoils it.
struct Output {
  Output() : right(to_size(kTokens * kHeads * kDims)) {
    std::mt19937_64 random(5);
    std::normal_distribution<double> normal;
    for (double& v : right) v = normal(random);
    value = right;
  }
  static std::size_t at(std::int64_t t, std::int64_t h, std::int64_t d) {
    return to_size((t * kHeads + h) * kDims + d);
  }
  // spoil(t, h, d) is the value there.
  Output& with(const std::function<double(std::int64_t, std::int64_t, std::int64_t)>& spoil) {
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t h = 0; h < kHeads; ++h) {
        for (std::int64_t d = 0; d < kDims; ++d) value[at(t, h, d)] = spoil(t, h, d);
      }
    }
    return *this;
  }
  double of(std::int64_t t, std::int64_t h, std::int64_t d) const { return right[at(t, h, d)]; }

  std::vector<ErrorFinding> findings(const PatternContext& context = {}) const {
    Tolerance rule;
    rule.abs = 1e-6;
    const auto view = [](const std::vector<double>& v) {
      return make_tensor(const_cast<double*>(v.data()), {kTokens, kHeads, kDims});
    };
    return error_pattern(wrong_elements(view(value), view(right), {}, rule), {"T", "H", "D"},
                         context);
  }

  std::vector<double> right, value;
};

std::string kinds(const std::vector<ErrorFinding>& findings) {
  std::string all;
  for (const ErrorFinding& f : findings) all += (all.empty() ? "" : " ") + f.kind;
  return all;
}

void expect_said(const std::vector<ErrorFinding>& findings, const std::string& kind,
                 const std::string& part) {
  for (const ErrorFinding& f : findings) {
    if (f.kind != kind) continue;
    EXPECT_NE(f.sentence.find(part), std::string::npos) << f.sentence;
    EXPECT_GE(f.share, 0.8);
    EXPECT_LE(f.share, 1.0);
    return;
  }
  ADD_FAILURE() << "no " << kind << " among: " << kinds(findings);
}

TEST(ErrorPattern, NothingIsSaidOfARightOutput) { EXPECT_TRUE(Output().findings().empty()); }

TEST(ErrorPattern, FactorsHaveTheirNames) {
  const auto times = [](double factor) {
    Output o;
    return o.with([&](auto t, auto h, auto d) { return factor * o.of(t, h, d); }).findings();
  };
  expect_said(times(std::log2(std::exp(1.0))), "ratio", "log2(e)");
  expect_said(times(std::log(2.0)), "ratio", "ln(2)");
  expect_said(times(-1), "ratio", "the sign");
  expect_said(times(0.125), "ratio", "2^-3");
  expect_said(times(std::sqrt(32.0)), "ratio", "the square root of 32");
  expect_said(times(std::sqrt(128.0)), "ratio", ": the square root of 128");
  expect_said(times(1 / std::sqrt(512.0)), "ratio", ": 1 / the square root of 512");
  expect_said(times(1.07), "ratio", "all wrong values are 1.07 times the right ones");
}

TEST(ErrorPattern, DifferencesAndConstants) {
  Output plus;
  plus.with([&](auto t, auto h, auto d) { return plus.of(t, h, d) - 0.75; });
  expect_said(plus.findings(), "difference", "the right ones less 0.75");
  Output zero;
  zero.with([](auto, auto, auto) { return 0.0; });
  expect_said(zero.findings(), "constant", "all wrong values are 0");
  Output nan;
  nan.with([&](auto t, auto h, auto d) { return h == 3 ? std::nan("") : nan.of(t, h, d); });
  expect_said(nan.findings(), "not_finite", "all wrong values are NaN");
  expect_said(nan.findings(), "place", "head 3");
}

// Slots that are one too low are near a common factor as well.
TEST(ErrorPattern, IntegersThatAreOneOff) {
  std::vector<std::int64_t> right, value;
  for (std::int64_t i = 0; i < 32; ++i) {
    right.push_back(64 + i);
    value.push_back(63 + i);
  }
  Tolerance rule;
  rule.exact = true;
  const WrongElements wrong = wrong_elements(make_tensor(value.data(), {4, 8}),
                                             make_tensor(right.data(), {4, 8}), {}, rule);
  const auto findings = error_pattern(wrong, {"T", "N"}, {});
  EXPECT_EQ(kinds(findings), "difference place");
  expect_said(findings, "difference", "the right ones less 1");
  expect_said(findings, "place", "entries all 8");
}

// Slots of a list that is looked up in another column or another row of the block table.
TEST(ErrorPattern, SlotsOfOtherBlocks) {
  std::vector<std::int64_t> right, value;
  for (std::int64_t i = 0; i < 32; ++i) {
    right.push_back(9 * 64 + i);
    value.push_back((i < 16 ? 3 : 4) * 64 + i);
  }
  PatternContext context;
  context.slots_of = 64;
  Tolerance rule;
  rule.exact = true;
  const auto findings = [&] {
    return error_pattern(wrong_elements(make_tensor(value.data(), {4, 8}),
                                        make_tensor(right.data(), {4, 8}), {}, rule),
                         {"T", "W"}, context);
  };
  expect_said(findings(), "other_block", "all wrong slots are at the right row of another block");
  for (std::int64_t i = 0; i < 32; ++i) value[to_size(i)] = i;
  expect_said(findings(), "other_block", "at the right row of the null block");
  ++value[7];
  EXPECT_EQ(kinds(findings()).find("other_block"), std::string::npos);
  --value[7];
  context.slots_of = 0;
  EXPECT_EQ(kinds(findings()).find("other_block"), std::string::npos);
}

TEST(ErrorPattern, ANumberOfEachRow) {
  Output o;
  o.with(
      [&](auto t, auto h, auto d) { return o.of(t, h, d) * (1.1 + 0.1 * static_cast<double>(h)); });
  expect_said(o.findings(), "row_ratio", "times a number of the row, 1.1 to 1.8");
}

TEST(ErrorPattern, RowsOfOthers) {
  Output before;
  before.with(
      [&](auto t, auto h, auto d) { return before.of(std::max<std::int64_t>(t - 1, 0), h, d); });
  expect_said(before.findings(), "moved_row", "the right one of the token before it");
  Output swapped;
  swapped.with([&](auto t, auto h, auto d) { return swapped.of(t, h ^ 1, d); });
  expect_said(swapped.findings(), "moved_row", "as if two heads were exchanged");
  Output first;
  first.with([&](auto t, auto, auto d) { return first.of(t, 0, d); });
  expect_said(first.findings(), "moved_row", "the right one of head 0");
  EXPECT_EQ(kinds(first.findings()), "moved_row place");
}

TEST(ErrorPattern, DimsInAnotherOrder) {
  PatternContext context;
  context.rope_dims = 8;
  Output o;
  o.with([&](auto t, auto h, auto d) {
    const std::int64_t in = d - (kDims - 8);  // of the last 8
    return in < 0 ? o.of(t, h, d) : o.of(t, h, kDims - 8 + in % 4 * 2 + in / 4);
  });
  expect_said(o.findings(context), "moved_dim", "dims 24 to 31 are the right ones in halves where");
  // The first and the last of the eight stay where they are.
  expect_said(o.findings(context), "place", "dims 25 to 30");
  Output halves;
  halves.with([&](auto t, auto h, auto d) { return halves.of(t, h, (d + kDims / 2) % kDims); });
  expect_said(halves.findings(), "moved_dim", "with their halves exchanged");
}

TEST(ErrorPattern, PlacesKnowWhatTheyAre) {
  PatternContext context;
  context.rope_dims = 8;
  context.block_sizes = {4};
  context.positions = {62, 63, 64, 65, 126, 127};
  context.requests = {0, 0, 0, 0, 1, 1};
  context.page_rows = {64};
  const auto wrong_where =
      [&](const std::function<bool(std::int64_t, std::int64_t, std::int64_t)>& is) {
        Output o;
        return o
            .with([&](auto t, auto h, auto d) {
              return o.of(t, h, d) +
                     (is(t, h, d) ? 0.1 * static_cast<double>(1 + d + 7 * h + t * t) : 0);
            })
            .findings(context);
      };
  const auto says = [&](const std::function<bool(std::int64_t, std::int64_t, std::int64_t)>& is,
                        const std::string& part) { expect_said(wrong_where(is), "place", part); };
  says([](auto, auto, auto d) { return d >= 24; },
       "dims 24 to 31, the last 8, as many as RoPE turns");
  says([](auto, auto, auto d) { return d >= 24 && d != 27 && d != 31; },
       "dims 6 of 32, all among the last 8, as many as RoPE turns");
  says([](auto, auto, auto d) { return d >= 23 && d != 27; }, "dims 8 of 32");
  EXPECT_EQ(wrong_where([](auto, auto, auto d) { return d >= 23 && d != 27; })
                .back()
                .sentence.find("RoPE"),
            std::string::npos);
  says([](auto, auto, auto d) { return d < 24; }, "dims 0 to 23, those that RoPE does not turn");
  says([](auto, auto, auto d) { return d / 4 == 2; }, "dims 8 to 11, block 2 of 4 with one scale");
  says([](auto, auto h, auto) { return h % 2 == 1; }, "heads every 2nd from 1");
  says([](auto t, auto, auto) { return t == 1 || t == 5; },
       "tokens 2 of 6, all at row 63 of a page of 64");
  says([](auto t, auto, auto) { return t == 3 || t == 5; },
       "tokens 2 of 6, the last of their request in the step");
  EXPECT_EQ(wrong_where([](auto t, auto, auto) { return t == 1 || t == 3 || t == 5; })
                .back()
                .sentence.find("of their request"),
            std::string::npos);
  says([](auto t, auto, auto) { return t >= 4; }, "tokens 4 to 5, all of request row 1");
  says([](auto t, auto, auto) { return t >= 2; }, "those at position 64 and behind it");
  says([](auto, auto, auto) { return true; },
       "1536 of 1536 elements are wrong: tokens all 6; heads all 8");
}

TEST(ErrorPattern, PlacesInWords) {
  EXPECT_EQ(places_text({0, 1, 2}, 3), "all 3");
  EXPECT_EQ(places_text({7}, 9), "7");
  EXPECT_EQ(places_text({2, 3, 4}, 9), "2 to 4");
  EXPECT_EQ(places_text({1, 3, 5, 7}, 8), "every 2nd from 1");
  EXPECT_EQ(places_text({1, 3, 6}, 8), "3 of 8");
}

// Noise follows no rule: only where it lies is said.
TEST(ErrorPattern, NoiseHasAPlaceAlone) {
  Output o;
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal;
  o.with([&](auto t, auto h, auto d) { return o.of(t, h, d) + 0.5 * normal(random); });
  EXPECT_EQ(kinds(o.findings()), "place");
}

// What a mask leaves out is not wrong, whatever it holds.
TEST(ErrorPattern, AMaskLeavesRowsOut) {
  std::vector<double> right(12, 1.0), value(12, std::numeric_limits<double>::quiet_NaN());
  const std::int64_t slots[] = {-1, -1, 4};
  std::fill(value.begin() + 8, value.end(), 2.0);
  Tolerance rule;
  rule.abs = 1e-3;
  TapMask mask;
  mask.slots = slots;
  const WrongElements wrong = wrong_elements(make_tensor(value.data(), {3, 4}),
                                             make_tensor(right.data(), {3, 4}), mask, rule);
  EXPECT_EQ(wrong.elements, 4);
  EXPECT_EQ(wrong.count, 4);
  const std::int32_t lens[] = {1, 0, 2};
  mask = {};
  mask.lens = lens;
  EXPECT_EQ(wrong_elements(make_tensor(value.data(), {3, 4}), make_tensor(right.data(), {3, 4}),
                           mask, rule)
                .count,
            3);
}

// A bound that follows from the largest value of a row is that of the values that count.
TEST(ErrorPattern, WhatIsBehindARowDoesNotWidenItsBounds) {
  std::vector<double> right = {1, 1, 1e6}, value = {1.5, 1, 1e6};
  const std::int32_t lens[] = {2};
  Tolerance rule;
  rule.row_max = 1e-3;
  TapMask mask;
  mask.lens = lens;
  EXPECT_EQ(wrong_elements(make_tensor(value.data(), {1, 3}), make_tensor(right.data(), {1, 3}),
                           mask, rule)
                .count,
            1);
}

}  // namespace error_pattern_test
}  // namespace attnscope
