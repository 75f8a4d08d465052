// A study of cache formats as curves over the length: what is off in the output of attention and in
// the hidden state behind the last layer, and how many sampled tokens are others.
#pragma once

#include <string>
#include <vector>

#include "app/reports/cache_study.h"

namespace attnscope {

struct StudyCurve {
  std::string name;  // of the format
  int place = 0;     // of the format in the study: one colour in all plots
  std::vector<double> x, y;
};

struct StudyPlot {
  std::string title;
  bool log_y = false;  // points at 0 are left out
  std::vector<StudyCurve> curves;
  std::vector<double> x_ticks, y_ticks;  // the lengths; round numbers about the values
};

struct CacheStudyView {
  std::string sentence;
  std::vector<StudyPlot> plots;
};

CacheStudyView cache_study_view(const CacheStudy& study);

}  // namespace attnscope
