#include "app/cli/study_picture.h"

#ifdef ATTNSCOPE_HAS_GUI
#include <memory>

#include "app/gui/study_picture.h"
#endif

namespace attnscope {

Result<StudyPainter> study_painter() {
#ifdef ATTNSCOPE_HAS_GUI
  auto opened = gui::StudyPicture::open();
  if (!opened) return opened.error();
  const std::shared_ptr<gui::StudyPicture> picture = std::move(*opened);
  return StudyPainter([picture](const CacheStudy& study, const std::string& path) -> Result<void> {
    const auto image = picture->draw(cache_study_view(study));
    if (!image) return image.error();
    return gui::write_png(*image, path);
  });
#else
  return Error{AS_NO_ENVIRONMENT, "--png: this build has no desktop app, which draws the picture",
               "use --svg FILE for a drawing, or install libglfw3-dev, libgl-dev, libopengl-dev, "
               "libegl-dev and libx11-dev and build again"};
#endif
}

}  // namespace attnscope
