// What is written as text is JSON, and is read as it was.
#include "engine/io/json_text.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/capture/step_line.h"
#include "engine/capture/trace_entry.h"

namespace attnscope {
namespace json_text_test {

template <class T>
void expect_same(const T& value) {
  const std::string text = to_json_text(value);
  const nlohmann::json read = nlohmann::json::parse(text, nullptr, false);
  ASSERT_FALSE(read.is_discarded()) << text;
  T back;
  ASSERT_EQ(from_json_fields(read, back), "") << text;
  EXPECT_EQ(to_json_text(back), text);
}

TraceEntry entry_with_everything() {
  TraceEntry entry;
  entry.step = std::numeric_limits<std::int64_t>::min();
  entry.complete = true;
  Request& request = entry.requests.emplace_back();
  request.name = "quoted \" and \\ back, line\nbreak, tab\t, \x01, ünïcode";
  entry.misses.push_back({7, ""});
  entry.waiting = StepWhy{1, "why"};
  OpEntry& op = entry.ops.emplace_back();
  op.lane = "cpu";
  op.microseconds = 0.1;
  op.budget_used = std::numeric_limits<double>::infinity();
  TapEntry& tap = op.taps.emplace_back();
  tap.value = {"x", "bf16", {4, 0, 7}};
  TapStats& stats = tap.stats.emplace();
  stats.min = -std::numeric_limits<double>::infinity();
  stats.max = std::numeric_limits<double>::quiet_NaN();
  stats.mean = 1e-300;
  stats.l2 = 1.0 / 3;
  op.taps.emplace_back();
  op.rows.emplace_back();
  op.attention.emplace().lse_error = 5e-324;
  entry.ops.emplace_back();  // lists in it are empty
  return entry;
}

TEST(JsonText, OfATraceIsReadAsItWas) {
  expect_same(entry_with_everything());
  expect_same(TraceEntry{});
}

TEST(JsonText, OfAStepIsReadAsItWas) {
  StepLine line;
  line.payload = {std::numeric_limits<std::uint64_t>::max(), "0123456789abcdef"};
  line.summary.seconds = 1e20;
  line.summary.layers.resize(2);
  TapResult& result = line.summary.results.emplace_back();
  result.tap = "y";
  result.tolerance = "bf16 \"same\"";
  result.introduced.emplace().cosine = -0.0;
  expect_same(line);
  expect_same(StepLine{});
}

TEST(JsonText, NumbersAreReadBackToTheLastBit) {
  for (const double value :
       {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -2.5, 1e15, 123456789.0}) {
    TapStats stats;
    stats.mean = value;
    TapStats back;
    EXPECT_EQ(from_json_fields(nlohmann::json::parse(to_json_text(stats)), back), "");
    EXPECT_EQ(back.mean, value);
  }
}

TEST(JsonText, ATextThatIsNotUtf8IsWrittenWithReplacements) {
  TapStats stats;
  stats.checksum = "\xff\033";
  TapStats back;
  EXPECT_EQ(from_json_fields(nlohmann::json::parse(to_json_text(stats)), back), "");
  EXPECT_EQ(back.checksum, "\xef\xbf\xbd\033");
}

}  // namespace json_text_test
}  // namespace attnscope
