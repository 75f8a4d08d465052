#include "app/reports/cache_study_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "app/text/format.h"

namespace attnscope {
namespace {

// 1, 2 and 5 times powers of ten, from the last at or below the least to the first at or above the
// largest.
std::vector<double> log_ticks(double least, double largest) {
  std::vector<double> ticks;
  const auto decade = [](double x) { return static_cast<int>(std::floor(std::log10(x))); };
  for (int power = decade(least); power <= decade(largest) + 1; ++power) {
    const double ten = std::pow(10, power);
    for (const double tick : {ten, 2 * ten, 5 * ten}) {
      if (!ticks.empty() && tick <= least) ticks.clear();
      if (ticks.empty() || ticks.back() < largest) ticks.push_back(tick);
    }
  }
  return ticks;
}

// Whole numbers from 0 on, six at most.
std::vector<double> count_ticks(double largest) {
  std::vector<double> ticks;
  const double step = std::max(1.0, std::ceil(largest / 5));
  const int count = static_cast<int>(std::ceil(largest / step)) + 1;
  ticks.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) ticks.push_back(i * step);
  return ticks;
}

void set_ticks(StudyPlot& plot) {
  double least = std::numeric_limits<double>::infinity(), largest = 0;
  for (const StudyCurve& curve : plot.curves) {
    plot.x_ticks.insert(plot.x_ticks.end(), curve.x.begin(), curve.x.end());
    for (const double y : curve.y) {
      least = std::min(least, y);
      largest = std::max(largest, y);
    }
  }
  std::ranges::sort(plot.x_ticks);
  plot.x_ticks.erase(std::unique(plot.x_ticks.begin(), plot.x_ticks.end()), plot.x_ticks.end());
  const bool values = std::isfinite(least) && std::isfinite(largest);
  if (values) plot.y_ticks = plot.log_y ? log_ticks(least, largest) : count_ticks(largest);
}

template <class Value>
StudyPlot study_plot(const CacheStudy& study, const char* title, bool log_y, const Value& value) {
  StudyPlot plot{title, log_y, {}, {}, {}};
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
  set_ticks(plot);
  return plot;
}

}  // namespace

CacheStudyView cache_study_view(const CacheStudy& study) {
  CacheStudyView view;
  // Of what is smaller than bf16, at the longest length.
  const CacheStudyFormat* best = nullptr;
  for (const CacheStudyFormat& format : study.formats) {
    if (format.bytes() >= study.formats.front().bytes()) continue;
    if (best == nullptr || format.points.back().error < best->points.back().error) best = &format;
  }
  view.sentence = fmt::format("{}: rows in {} formats, the last {} tokens of each length",
                              study.model, study.formats.size(), study.tokens);
  if (best != nullptr) {
    view.sentence += fmt::format(
        "; of the smaller ones {} errs least after {} tokens, {:.2g} of attention's output, with "
        "{:.2f} of bf16's bytes",
        best->name, format_count(best->points.back().length), best->points.back().error,
        best->bytes() / study.formats.front().bytes());
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
