// A study of cache formats as curves: values, what a logarithmic axis leaves out, the sentence.
#include "app/reports/cache_study_view.h"

#include <gtest/gtest.h>

#include "app/text/format.h"

namespace attnscope {
namespace cache_study_view_test {

CacheStudy two_formats() {
  CacheStudy study{"tiny", 16, {}};
  study.formats.push_back({"bf16", 1024, {{128, 0, 0, 0, 0}, {2048, 0, 0, 0, 0}}});
  study.formats.push_back({"fp8_tensor", 512, {{128, 0.03, 1, 0.04, 3}, {2048, 0.02, 1, 0.03, 1}}});
  study.formats.push_back({"int8", 640, {{128, 0.005, 1, 0.01, 1}, {2048, 0.003, 1, 0.01, 0}}});
  return study;
}

TEST(CacheStudyView, HasACurveAFormat) {
  const CacheStudyView view = cache_study_view(two_formats());
  ASSERT_EQ(view.plots.size(), 3u);
  ASSERT_EQ(view.plots[0].curves.size(), 2u) << "bf16 rows have no error that a logarithm has";
  EXPECT_TRUE(view.plots[0].log_y);
  EXPECT_EQ(view.plots[0].curves[0].name, "fp8_tensor");
  EXPECT_EQ(view.plots[0].curves[0].x, (std::vector<double>{128, 2048}));
  EXPECT_EQ(view.plots[0].curves[1].y, (std::vector<double>{0.005, 0.003}));
  EXPECT_EQ(view.plots[1].curves[0].y, (std::vector<double>{0.04, 0.03}));
  ASSERT_EQ(view.plots[2].curves.size(), 3u);
  EXPECT_FALSE(view.plots[2].log_y);
  EXPECT_EQ(view.plots[0].curves[1].place, 2) << "of the study's formats, not of the curves";
  EXPECT_EQ(view.plots[2].curves[2].place, 2);
  EXPECT_EQ(view.plots[2].curves[0].y, (std::vector<double>{0, 0}));
  EXPECT_EQ(view.plots[2].curves[1].y, (std::vector<double>{3, 1}));
}

TEST(CacheStudyView, HasTicksAtTheLengthsAndAboutTheValues) {
  const CacheStudyView view = cache_study_view(two_formats());
  for (const StudyPlot& plot : view.plots) {
    EXPECT_EQ(plot.x_ticks, (std::vector<double>{128, 2048}));
  }
  const std::vector<double> values = {0.002, 0.005, 0.01, 0.02, 0.05};
  ASSERT_EQ(view.plots[0].y_ticks.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_DOUBLE_EQ(view.plots[0].y_ticks[i], values[i]);
  }
  EXPECT_EQ(view.plots[2].y_ticks, (std::vector<double>{0, 1, 2, 3}));

  CacheStudy many = two_formats();
  many.formats[1].points[0].changed = 16;
  EXPECT_EQ(cache_study_view(many).plots[2].y_ticks, (std::vector<double>{0, 4, 8, 12, 16}));
  many.formats.resize(1);
  EXPECT_TRUE(cache_study_view(many).plots[0].y_ticks.empty());
  EXPECT_EQ(cache_study_view(many).plots[2].y_ticks, (std::vector<double>{0}));
}

TEST(CacheStudyView, NamesTheBestOfTheSmallerOnes) {
  EXPECT_EQ(
      cache_study_view(two_formats()).sentence,
      std::string(
          "tiny: rows in 3 formats, the last 16 tokens of each length; of the smaller ones int8 "
          "errs least after ") +
          format_count(2048) +
          " tokens, 0.003 of attention's output, with 0.62 of bf16's "
          "bytes");
}

}  // namespace cache_study_view_test
}  // namespace attnscope
