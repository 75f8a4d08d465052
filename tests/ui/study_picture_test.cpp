// The picture of a study that the shell writes: drawn without a display, from the study's numbers.
#include "app/gui/study_picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "app/gui/theme.h"

namespace attnscope::gui {
namespace study_picture_test {

CacheStudy two_formats() {
  CacheStudy study{"tiny", 16, {}};
  study.formats.push_back({"bf16", 1024, {{128, 0, 0, 0, 0}, {2048, 0, 0, 0, 0}}});
  study.formats.push_back({"fp8_tensor", 512, {{128, 0.03, 1, 0.04, 3}, {2048, 0.02, 1, 0.03, 1}}});
  return study;
}

// Pixels of exactly this colour, of those whose place from the left is in [from, to).
int pixels_of(const Image& image, ImU32 colour, int from, int to) {
  const std::array<std::uint8_t, 3> wanted{static_cast<std::uint8_t>(colour >> IM_COL32_R_SHIFT),
                                           static_cast<std::uint8_t>(colour >> IM_COL32_G_SHIFT),
                                           static_cast<std::uint8_t>(colour >> IM_COL32_B_SHIFT)};
  int found = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = from; x < to; ++x) {
      const std::ptrdiff_t at = (std::ptrdiff_t{y} * image.width + x) * 3;
      found += std::equal(wanted.begin(), wanted.end(), image.rgb.begin() + at) ? 1 : 0;
    }
  }
  return found;
}

TEST(StudyPicture, DrawsEachFormatInOneColourInEveryPlot) {
  setenv("LIBGL_ALWAYS_SOFTWARE", "1", 1);
  auto picture = StudyPicture::open();
  ASSERT_TRUE(picture) << picture.error().text();
  const auto image = (*picture)->draw(cache_study_view(two_formats()));
  ASSERT_TRUE(image) << image.error().text();
  ASSERT_EQ(image->width, 1800);
  ASSERT_EQ(image->height, 640);
  for (int plot = 0; plot < 3; ++plot) {
    SCOPED_TRACE(plot);
    EXPECT_GT(pixels_of(*image, owner_colour(1), 600 * plot, 600 * (plot + 1)), 100);
  }
  // bf16 errs nowhere: a logarithmic axis has no place for it.
  EXPECT_EQ(pixels_of(*image, owner_colour(0), 0, 1200), 0);
  EXPECT_GT(pixels_of(*image, owner_colour(0), 1200, 1800), 100);
}

// Other numbers make another picture, the same ones the same, in a context that is made anew.
TEST(StudyPicture, ShowsTheNumbers) {
  setenv("LIBGL_ALWAYS_SOFTWARE", "1", 1);
  const auto draw = [](const CacheStudy& study) {
    auto picture = StudyPicture::open();
    return picture ? (*picture)->draw(cache_study_view(study)) : Result<Image>(picture.error());
  };
  CacheStudy study = two_formats();
  const auto first = draw(study), again = draw(study);
  study.formats[1].points[1].carried = 0.3;
  const auto other = draw(study);
  ASSERT_TRUE(first && again && other) << (first ? "" : first.error().text());
  EXPECT_TRUE(first->rgb == again->rgb);
  EXPECT_FALSE(first->rgb == other->rgb);
}

}  // namespace study_picture_test
}  // namespace attnscope::gui
