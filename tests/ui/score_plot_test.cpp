// The axes of the indexer's scores follow what is shown, however few entries there were before.
#include "app/gui/score_plot.h"

#include <gtest/gtest.h>
#include <implot_internal.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/ui/headless.h"

namespace attnscope::gui {
namespace score_plot_test {

TopKView view_of(std::int64_t visible, float scale) {
  TopKView view;
  const auto n = static_cast<std::size_t>(visible);
  view.visible = visible;
  view.k = 512;
  view.chosen = true;
  view.selected = visible;
  for (std::int64_t e = 0; e < visible; ++e) {
    view.scores.push_back(scale * static_cast<float>(e + 1));
  }
  view.order.resize(n);
  std::iota(view.order.rbegin(), view.order.rend(), 0);
  view.rank = view.order;
  view.flags.assign(n, kInOurs);
  return view;
}

class ScorePlots : public testing::Test {
 protected:
  // Draws some frames and says what the axes show.
  ImPlotRect draw(const TopKView& view, std::uint64_t version) {
    ImPlotRect shown;
    for (int i = 0; i < 4; ++i) {
      headless_.frame([&] {
        plot_.draw("##scores", view, version, ScoreOrder::kEntry, -1, {600, 300});
        const ImPlotPlot* plot = ImPlot::GetPlot("##scores");
        labels_.clear();
        const ImPlotTicker& ticks = plot->XAxis(0).Ticker;
        for (int t = 0; t < ticks.TickCount(); ++t) labels_.emplace_back(ticks.GetText(t));
        const ImPlotRange x = plot->XAxis(0).Range, y = plot->YAxis(0).Range;
        shown = ImPlotRect(x.Min, x.Max, y.Min, y.Max);
      });
    }
    return shown;
  }
  static void expect_all(const TopKView& view, const ImPlotRect& shown) {
    EXPECT_LE(shown.X.Min, 0);
    EXPECT_GE(shown.X.Max, static_cast<double>(view.visible - 1));
    EXPECT_LE(shown.X.Size(), 1.2 * static_cast<double>(view.visible)) << "and not much besides";
    EXPECT_LE(shown.Y.Min, view.scores.front());
    EXPECT_GE(shown.Y.Max, view.scores.back());
  }

  std::vector<std::string> labels_;  // of the lower axis
  Headless headless_;
  ScorePlot plot_;
};

TEST_F(ScorePlots, FollowFromFewEntriesToMany) {
  std::uint64_t version = 0;
  for (const std::int64_t visible : {2, 500, 1, 3, 40, 2, 90}) {
    SCOPED_TRACE(visible);
    const TopKView view = view_of(visible, visible == 40 ? 25.0f : 0.5f);
    expect_all(view, draw(view, ++version));
  }
}

TEST_F(ScorePlots, NoEntryIsHalfAnEntry) {
  draw(view_of(5, 1), 1);
  for (const std::string& label : labels_) {
    EXPECT_EQ(label.find('.'), std::string::npos) << label;
  }
  const auto said = std::ranges::count_if(labels_, [](const auto& label) { return label != ""; });
  EXPECT_EQ(said, 5) << "0 to 4";
}

TEST_F(ScorePlots, ZoomLastsUntilAnotherScenario) {
  const TopKView first = view_of(300, 1), next = view_of(310, 1), other = view_of(20, 40);
  expect_all(first, draw(first, 1));
  const auto wheel = [&] {
    headless_.frame([&] { plot_.draw("##scores", first, 1, ScoreOrder::kEntry, -1, {600, 300}); });
  };
  ImGui::GetIO().AddMousePosEvent(300, 150);
  wheel();
  wheel();
  ImGui::GetIO().AddMouseWheelEvent(0, 3);
  wheel();
  const ImPlotRect zoomed = draw(first, 1);
  ASSERT_LT(zoomed.X.Size(), 280);
  EXPECT_EQ(draw(next, 2).X.Size(), zoomed.X.Size()) << "from step to step it stays";
  plot_.fit_again();
  expect_all(other, draw(other, 3));
}

}  // namespace score_plot_test
}  // namespace attnscope::gui
