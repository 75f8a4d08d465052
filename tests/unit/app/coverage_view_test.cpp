// What the coverage panel says: paths met and not met, over all steps and in the cursor's.
#include "app/views/coverage_view.h"

#include <algorithm>

#include "tests/unit/app/stepped_session.h"

namespace attnscope {
namespace coverage_view_test {

class Coverage : public SteppedSession {
 protected:
  static const CoverageLine& line(const CoverageView& view, std::string_view name) {
    return *std::ranges::find_if(view.lines,
                                 [&](const CoverageLine& l) { return l.path.name == name; });
  }
};

TEST_F(Coverage, NamesWhatWasMetAndWhatWasNot) {
  const CoverageView view = coverage_view(*info_, *snapshot_, 0);
  EXPECT_EQ(view.why_empty, "");
  EXPECT_EQ(view.steps, 7);
  EXPECT_EQ(view.unwatched, 0);
  const CoverageLine& first = line(view, "first_c4_window");
  EXPECT_GT(first.here, 0);
  EXPECT_EQ(first.path.first_step, 0);
  EXPECT_GT(line(view, "window_moved").path.count, 0);
  EXPECT_EQ(line(view, "recomputed").path.count, 0);
  // What was never met stands first, and is named in the sentence.
  EXPECT_EQ(view.lines.front().path.count, 0);
  EXPECT_NE(view.sentence.find(view.lines.front().path.name), std::string::npos) << view.sentence;
  EXPECT_NE(view.sentence.find(" paths exercised in 7 steps"), std::string::npos) << view.sentence;
  std::int64_t met = 0;
  for (const CoverageLine& l : view.lines) met += l.path.count > 0 ? 1 : 0;
  EXPECT_EQ(view.met, met);
}

TEST_F(Coverage, FollowsTheStepUnderTheCursor) {
  const CoverageView later = coverage_view(*info_, *snapshot_, 6);
  EXPECT_EQ(line(later, "first_c4_window").here, 0);
  EXPECT_GT(line(later, "window_moved").here, 0);
  EXPECT_NE(later.sentence.find("Step 6 met "), std::string::npos) << later.sentence;
}

// Going back and over the same steps again counts nothing twice.
TEST_F(Coverage, AReplayCountsOnce) {
  change_session();
  const CoverageView before = coverage_view(*info_, *snapshot_, 6);
  ASSERT_TRUE(session_->seek({2, -1, 0, false}));
  while (session_->cursor().step < 7) ASSERT_TRUE(session_->step());
  const auto again = take_snapshot(*session_, *recorder_, info_, 2);
  const CoverageView after = coverage_view(*info_, *again, 6);
  ASSERT_EQ(after.lines.size(), before.lines.size());
  for (std::size_t i = 0; i < after.lines.size(); ++i) {
    EXPECT_EQ(after.lines[i].path.count, before.lines[i].path.count) << after.lines[i].path.name;
  }
}

TEST_F(Coverage, StepsThatNobodyWatchedAreSaid) {
  change_session();
  TraceRecorder late;
  late.adopt_history(*session_);
  const auto kept = take_snapshot(*session_, late, info_, 2);
  EXPECT_NE(coverage_view(*info_, *kept, 6).why_empty.find("nobody watched"), std::string::npos);
  session_->set_observer(&late);
  run_steps(*session_, 1);
  const auto resumed = take_snapshot(*session_, late, info_, 3);
  const CoverageView view = coverage_view(*info_, *resumed, 7);
  EXPECT_EQ(view.unwatched, 7);
  EXPECT_EQ(view.steps, 1);
  EXPECT_NE(view.sentence.find("7 other steps"), std::string::npos) << view.sentence;
}

}  // namespace coverage_view_test
}  // namespace attnscope
