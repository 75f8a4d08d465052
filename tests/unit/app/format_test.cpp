#include "app/text/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernels/params/op_table.h"

namespace attnscope {
namespace format_test {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Format, NumbersHaveAtMostFourSignificantDigits) {
  EXPECT_EQ(format_number(0.3125), "0.3125");
  EXPECT_EQ(format_number(0.5), "0.5");
  EXPECT_EQ(format_number(1.2e-4), "1.2e-4");
  EXPECT_EQ(format_number(-1234.56), "-1235");
  EXPECT_EQ(format_number(9999.6), "1e4");
  EXPECT_EQ(format_number(12345), "1.234e4");  // ties to even, as in binary
  EXPECT_EQ(format_number(0.00099996), "0.001");
  EXPECT_EQ(format_number(3), "3");
  EXPECT_EQ(format_number(100), "100");
}

TEST(Format, SpecialValues) {
  for (const auto format : {format_number, format_exact, format_error}) {
    EXPECT_EQ(format(kNan), "NaN");
    EXPECT_EQ(format(kInf), "inf");
    EXPECT_EQ(format(-kInf), "-inf");
  }
  EXPECT_EQ(format_number(0.0), "0");
  EXPECT_EQ(format_number(-0.0), "0");
  EXPECT_EQ(format_exact(-0.0), "-0");
  EXPECT_EQ(format_number(5e-324), "4.941e-324");
  EXPECT_EQ(format_number(std::numeric_limits<double>::max()), "1.798e308");
  EXPECT_EQ(format_bytes(kNan), "NaN");
  EXPECT_EQ(format_us(kInf), "inf");
  EXPECT_EQ(format_share(kNan), "NaN");
}

// What is shown is never further from the value than half a unit of the fourth digit.
TEST(Format, NumbersAreRoundedNotCut) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> mantissa(1, 10);
  for (int exponent = -300; exponent <= 300; ++exponent) {
    const double value = mantissa(random) * std::pow(10.0, exponent);
    EXPECT_NEAR(std::stod(format_number(value)) / value, 1, 5.1e-4) << value;
    EXPECT_EQ(std::stod(format_exact(value)), value);
  }
}

TEST(Format, Errors) {
  EXPECT_EQ(format_error(0), "0");
  EXPECT_EQ(format_error(1.2345e-4), "1.2e-4");
  EXPECT_EQ(format_error(0.03), "0.03");
  EXPECT_EQ(format_error(1.25), "1.2");
  EXPECT_EQ(format_error(12), "12");
  EXPECT_EQ(format_error(512), "5.1e2");
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(584), "584 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(37480), "36.6 KiB");
  EXPECT_EQ(format_bytes(1024 * 1024 - 1), "1 MiB");  // not 1024 KiB
  EXPECT_EQ(format_bytes(1.5 * (1 << 30)), "1.5 GiB");
  EXPECT_EQ(format_bytes(-2048), "-2 KiB");
  EXPECT_EQ(format_bytes(3e15), "2728 TiB");
  EXPECT_EQ(format_bytes(1e300), "9.09e287 TiB");
}

TEST(Format, Times) {
  EXPECT_EQ(format_us(0), "0 ns");
  EXPECT_EQ(format_us(0.42), "420 ns");
  EXPECT_EQ(format_us(8.1), "8.1 µs");
  EXPECT_EQ(format_us(999.7), "1 ms");
  EXPECT_EQ(format_us(3300), "3.3 ms");
  EXPECT_EQ(format_us(1.04e6), "1.04 s");
  EXPECT_EQ(format_us(7.2e9), "7200 s");
}

TEST(Format, CountsAreGroupedByThinSpaces) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(2104), "2\u2009104");
  EXPECT_EQ(format_count(-100000), "-100\u2009000");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()),
            "-9\u2009223\u2009372\u2009036\u2009854\u2009775\u2009808");
}

TEST(Format, SharesNeverRoundToNothingOrAll) {
  EXPECT_EQ(format_share(0), "0 %");
  EXPECT_EQ(format_share(0.0001), "< 0.1 %");
  EXPECT_EQ(format_share(0.004), "0.4 %");
  EXPECT_EQ(format_share(0.312), "31 %");
  EXPECT_EQ(format_share(0.0996), "10 %");
  EXPECT_EQ(format_share(0.995), "99.5 %");
  EXPECT_EQ(format_share(0.9999), "> 99.9 %");
  EXPECT_EQ(format_share(1), "100 %");
  EXPECT_EQ(format_share(1.5), "150 %");
}

TEST(Format, Tokens) {
  EXPECT_EQ(format_token('a'), "'a'");
  EXPECT_EQ(format_token(' '), "' '");
  EXPECT_EQ(format_token('\n'), "0x0A");
  EXPECT_EQ(format_token(0x7f), "0x7F");
  EXPECT_EQ(format_token(258), "#258");
  EXPECT_EQ(format_token(-1), "none");
}

TEST(Place, EveryOpIsWrittenAndReadBack) {
  for (std::int32_t i = 0; i < AS_OP_COUNT; ++i) {
    const as_op_info* op = as_op_find(i);
    const bool layered = op->phase == AS_PHASE_LAYER;
    const std::string text = std::string("12/") + (layered ? "3" : "-") + "/" + op->name;
    const auto place = parse_place(text);
    ASSERT_TRUE(place) << place.error().text();
    EXPECT_EQ(*place, (Place{12, layered ? 3 : -1, op->id}));
    EXPECT_EQ(format_place(*place),
              std::string("step 12 · ") + (layered ? "layer 3 · " : "") + op->name);
    // The other kind of place is refused, but for the head, which a draft layer has too.
    const auto other = parse_place(std::string("12/") + (layered ? "-" : "3") + "/" + op->name);
    EXPECT_EQ(static_cast<bool>(other), op->phase == AS_PHASE_AFTER) << op->name;
  }
  EXPECT_EQ(*parse_place(" 7 / 2 / indexer_topk "), (Place{7, 2, AS_OP_INDEXER_TOPK}));
}

TEST(Place, ErrorsSayWhatAndHow) {
  for (const char* text :
       {"", "7", "7/2", "7/2/indexer_topk/1", "/", "//", "x/2/indexer_topk", "-1/2/indexer_topk",
        "7/-2/indexer_topk", "7//indexer_topk", "99999999999999999999/2/indexer_topk",
        "7/2.5/indexer_topk", "7/4294967298/indexer_topk", "7/2/"}) {
    const auto place = parse_place(text);
    ASSERT_FALSE(place) << text;
    EXPECT_EQ(place.error().code, AS_BAD_INPUT);
    EXPECT_FALSE(place.error().hint.empty()) << text;
  }
  const auto typo = parse_place("7/2/indexer_topq");
  ASSERT_FALSE(typo);
  EXPECT_NE(typo.error().text().find("did you mean indexer_topk"), std::string::npos)
      << typo.error().text();
  EXPECT_FALSE(parse_place(std::string(1 << 20, '/')));
  EXPECT_LT(parse_place("1/2/" + std::string(1 << 20, 'x')).error().text().size(), 2000u);
}

}  // namespace format_test
}  // namespace attnscope
