#include "app/workbench/palette_list.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "app/views/op_order.h"
#include "app/workbench/workbench.h"
#include "engine/model/numbers.h"
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

TEST_F(PaletteList, FindsWhatIsInTheData) {
  Workbench bench({});
  RunSetup setup;
  setup.scenario = small_scenario(90, 4);
  setup.references = References::kNone;
  bench.open(std::move(setup), false);
  bench.run_until("to the end", [](const Session&) { return false; });
  bench.wait_idle();
  const Snapshot& snapshot = *bench.snapshot();
  const Place cursor = bench.cursor();
  const auto found = [&](const std::string& text) { return items(text, &snapshot, cursor); };
  const auto first = [&](const std::string& text) { return found(text)[0]; };
  EXPECT_EQ(first("token 5").run, "select.token=0/5");
  EXPECT_EQ(found("token 5")[1].run, "cursor.computed=0/5");
  EXPECT_EQ(first("Token 5 of 1").run.substr(0, 16), "select.token=1/5");
  EXPECT_EQ(first("token 999999").kind, PaletteItem::Kind::kNote);
  EXPECT_EQ(first("block 4").run, "select.block=4");
  EXPECT_FALSE(first("block 4").detail.empty()) << "who holds it";
  EXPECT_EQ(first("block 100000").kind, PaletteItem::Kind::kNote);
  EXPECT_EQ(first("head 2").run, "select.head=2");
  EXPECT_EQ(first("request 0").run, "select.request=0");
  EXPECT_EQ(first("step 1").run, "cursor.goto=" + place_text({1, cursor.layer, cursor.op}));
  EXPECT_EQ(first("entry 3 of C4A").run, "select.entry=3/4");
  EXPECT_EQ(first("entry 3 of C9A").kind, PaletteItem::Kind::kNote);
  EXPECT_EQ(first("layer 99").kind, PaletteItem::Kind::kNote);
  EXPECT_EQ(first("samples").detail, "sample");
  EXPECT_TRUE(first("samples").run.starts_with("cursor.goto="));
  // A text of a prompt, in either case.
  const Request& request = snapshot.requests[0].request;
  std::string part;
  for (int i = 10; i < 22; ++i) part += static_cast<char>(request.tokens[to_size(i)]);
  std::string upper = part;
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  for (const std::string& text : {part, upper}) {
    const auto of_text = found(text);
    EXPECT_TRUE(std::ranges::any_of(of_text, [](const PaletteItem& item) {
      return item.run == "cursor.computed=0/10";
    })) << text;
  }
  // Nothing of the sort.
  for (const char* none : {"token", "token x", "block -1", "block 4 of 1", "ev", "head 2 heads"}) {
    EXPECT_NE(first(none).kind, PaletteItem::Kind::kPlace) << none;
  }
}

}  // namespace palette_list_test
}  // namespace attnscope
