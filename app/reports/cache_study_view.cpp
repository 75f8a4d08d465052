#include "app/reports/cache_study_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/text/format.h"

namespace attnscope {
namespace {

template <class Value>
StudyPlot study_plot(const CacheStudy& study, const char* title, bool log_y, const Value& value) {
  StudyPlot plot{title, log_y, {}};
  int place = 0;
  for (const CacheStudyFormat& format : study.formats) {
    StudyCurve curve{format.name, place++, {}, {}};
    for (const CacheStudyPoint& point : format.points) {
      const double y = value(point);
      if (log_y && !(y > 0)) continue;
      curve.x.push_back(static_cast<double>(point.length));
      curve.y.push_back(y);
    }
    if (!curve.x.empty()) plot.curves.push_back(std::move(curve));
  }
  return plot;
}

}  // namespace

CacheStudyView cache_study_view(const CacheStudy& study) {
  CacheStudyView view;
  // Of what is smaller than bf16, at the longest length.
  const CacheStudyFormat* best = nullptr;
  for (const CacheStudyFormat& format : study.formats) {
    if (format.bytes_per_token >= study.formats.front().bytes_per_token) continue;
    if (best == nullptr || format.points.back().error < best->points.back().error) best = &format;
  }
  view.sentence = fmt::format("{}: rows in {} formats, the last {} tokens of each length",
                              study.model, study.formats.size(), study.tokens);
  if (best != nullptr) {
    view.sentence += fmt::format(
        "; of the smaller ones {} errs least after {} tokens, {:.2g} of attention's output, with "
        "{:.2f} of bf16's bytes",
        best->name, format_count(best->points.back().length), best->points.back().error,
        static_cast<double>(best->bytes_per_token) /
            static_cast<double>(study.formats.front().bytes_per_token));
  }
  view.plots = {
      study_plot(study, "error of attention's output", true,
                 [](const CacheStudyPoint& p) { return p.error; }),
      study_plot(study, "error carried to the end", true,
                 [](const CacheStudyPoint& p) { return p.carried; }),
      study_plot(study, "sampled tokens that are others", false,
                 [](const CacheStudyPoint& p) { return static_cast<double>(p.changed); })};
  return view;
}

}  // namespace attnscope
