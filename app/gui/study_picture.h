// The plots of a study of cache formats: drawn in a panel, and as a picture without a display.
#pragma once

#include <imgui.h>

#include <memory>
#include <string>

#include "app/gui/platform.h"
#include "app/reports/cache_study_view.h"

namespace attnscope::gui {

// Whether a plot of this size names its curves itself, beside them; in smaller ones names would
// hide the curves, and whoever draws them says which colour is whose.
bool names_study_curves(ImVec2 size);

// Between ImGui::Begin and End. A format has one colour in all plots.
void draw_study_plot(const StudyPlot& plot, ImVec2 size);

// Draws off screen, in an ImGui context of its own: for the shell, where no app runs. All calls
// come from the thread that opened it, as OpenGL wants it.
class StudyPicture {
 public:
  // AS_NO_ENVIRONMENT where OpenGL draws nothing without a display.
  static Result<std::unique_ptr<StudyPicture>> open();
  ~StudyPicture();
  StudyPicture(const StudyPicture&) = delete;
  StudyPicture& operator=(const StudyPicture&) = delete;

  Result<Image> draw(const CacheStudyView& view);

 private:
  StudyPicture();
  std::unique_ptr<Platform> platform_;
};

}  // namespace attnscope::gui
