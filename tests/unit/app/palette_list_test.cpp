#include "app/workbench/palette_list.h"

#include <gtest/gtest.h>

#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace palette_list_test {

class PaletteList : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto run = [](std::string_view) { return Result<void>(); };
    registry_.add({.id = "step.forward", .title = "Next step", .group = "Session", .run = run});
    registry_.add({.id = "cursor.goto",
                   .title = "Go to ..",
                   .group = "Session",
                   .argument = "STEP/LAYER/OP",
                   .run = run,
                   .in_menu = false});
    registry_.add({.id = "scenario.open",
                   .title = "Open scenario ..",
                   .group = "File",
                   .argument = "FILE",
                   .run = run});
  }
  std::vector<PaletteItem> items(const std::string& text, const Snapshot* snapshot = nullptr,
                                 const Place& cursor = {-1, -1, AS_OP_SCHEDULE}) {
    return palette_items(registry_, text, recent_, snapshot, cursor);
  }
  CommandRegistry registry_;
  std::vector<std::string> recent_;
};

TEST_F(PaletteList, ShowsAllAndTheRecentOnesFirst) {
  ASSERT_EQ(items("").size(), 3u);
  EXPECT_EQ(items("")[0].id, "step.forward");
  recent_ = {"scenario.open", "gone"};
  ASSERT_EQ(items(" ").size(), 3u);
  EXPECT_EQ(items("")[0].id, "scenario.open");
  EXPECT_EQ(items("")[1].id, "step.forward");
}

TEST_F(PaletteList, AsksForValuesThatAreNeeded) {
  EXPECT_TRUE(items("go to")[0].asks);
  EXPECT_FALSE(items("open")[0].asks) << "it has a dialog of its own";
  EXPECT_FALSE(items("next step")[0].asks);
}

TEST_F(PaletteList, AnEqualsSignGivesTheValue) {
  const auto one = items(" cursor.goto = 7/2/sample ");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].kind, PaletteItem::Kind::kValue);
  EXPECT_EQ(one[0].run, "cursor.goto=7/2/sample");
  EXPECT_EQ(items("cursor.goto=")[0].run, "cursor.goto");
  EXPECT_EQ(items("step.forward=1")[0].kind, PaletteItem::Kind::kNote) << "takes no value";
  EXPECT_EQ(items("=")[0].kind, PaletteItem::Kind::kNote);
}

TEST_F(PaletteList, SaysWhenNothingMatches) {
  const auto none = items("zzzz");
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0].kind, PaletteItem::Kind::kNote);
  EXPECT_EQ(items(std::string(100000, 'q')).size(), 1u);
  EXPECT_EQ(items("\xff\xfe").size(), 1u);
  EXPECT_EQ(items("@")[0].kind, PaletteItem::Kind::kNote);
}

TEST_F(PaletteList, NumbersArePlaces) {
  const auto session = small_session();
  Snapshot snapshot;
  snapshot.info = session_info(*session);
  const int layer = snapshot.info->config.layers[1];
  const Place cursor{4, layer, AS_OP_WO_A};
  const auto step = items("7", &snapshot, cursor);
  EXPECT_EQ(step[0].kind, PaletteItem::Kind::kPlace);
  EXPECT_EQ(step[0].run, "cursor.goto=" + place_text({7, layer, AS_OP_WO_A}));
  EXPECT_EQ(items("7/-/sample", &snapshot, cursor)[0].run, "cursor.goto=7/-/sample");
  EXPECT_EQ(items("0", &snapshot)[0].kind, PaletteItem::Kind::kPlace) << "before the first op";
  for (const char* none : {"7/99/wo_a", "7/-/wo_a", "-1", "7/1", "99999999999999999999"}) {
    EXPECT_NE(items(none, &snapshot, cursor)[0].kind, PaletteItem::Kind::kPlace) << none;
  }
}

TEST_F(PaletteList, AtListsTheStepsThatFailed) {
  const auto session = small_session();
  Snapshot snapshot;
  snapshot.info = session_info(*session);
  for (std::int64_t i = 0; i < 300; ++i) {
    auto step = std::make_shared<StepSummary>();
    step->step = i;
    TapResult result;
    result.step = i;
    result.op = AS_OP_SAMPLE;
    result.tap = "tokens";
    result.verdict = i % 2 == 0 ? Verdict::kWrong : Verdict::kEqual;
    step->results = {result, result};
    snapshot.steps.push_back(std::move(step));
  }
  const auto failed = items("@", &snapshot);
  ASSERT_EQ(failed.size(), 100u) << "no more than can be read";
  EXPECT_EQ(failed[1].run, "cursor.goto=2/-/sample");
  EXPECT_EQ(failed[1].detail, "2 wrong taps, first tokens");
}

}  // namespace palette_list_test
}  // namespace attnscope
