#include "app/reports/train_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "app/text/format.h"
#include "app/text/xml_text.h"
#include "app/views/training_view.h"
#include "engine/io/json_file.h"
#include "engine/io/trained_models.h"

namespace attnscope {
namespace {

constexpr double kCellWide = 320, kCellHigh = 232, kPageLeft = 20, kPageTop = 70;
constexpr double kPartHigh = 34;  // the heading of a training's charts
constexpr double kPlotLeft = 46, kPlotRight = 300, kPlotTop = 44, kPlotBottom = 198;
constexpr std::size_t kAcross = 3;
constexpr std::size_t kCurveColours = 4;

// Colours that differ in lightness too, on white and on black.
constexpr char kTrainStyle[] =
    "<style>\n"
    "text{font:12px system-ui,sans-serif;fill:#3b3f46}\n"
    ".title{font-size:16px;font-weight:600;fill:#16181d}.label{font-size:13px;fill:#16181d}\n"
    ".page{fill:#fff}.grid{stroke:#e2e4e8}.line{fill:none;stroke-width:1.8}\n"
    ".s0{stroke:#1f6fd0}.s1{stroke:#c8501a}.s2{stroke:#0f8a5f}.s3{stroke:#6a3fb5}\n"
    ".t0{fill:#1f6fd0}.t1{fill:#c8501a}.t2{fill:#0f8a5f}.t3{fill:#6a3fb5}\n"
    "@media (prefers-color-scheme: dark){\n"
    "text{fill:#b6bcc6}.title,.label{fill:#eef0f3}.page{fill:#14171c}.grid{stroke:#2b3038}\n"
    ".s0{stroke:#5aa2f5}.s1{stroke:#f08a54}.s2{stroke:#3cc492}.s3{stroke:#b193f2}\n"
    ".t0{fill:#5aa2f5}.t1{fill:#f08a54}.t2{fill:#3cc492}.t3{fill:#b193f2}\n"
    "}\n"
    "</style>\n";

std::string train_words(double x, double y, const std::string& classes, const char* anchor,
                        const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n",
                     x, y, classes, anchor, xml_text(text));
}

struct TrainSpan {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void take(double v) {
    if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
  }
  double share(double v) const { return high > low ? (v - low) / (high - low) : 0.5; }
  // The smallest of 1, 2 and 5 times a power of ten that few of lie within.
  double tick() const {
    const double rough = std::max(high - low, 1e-9) / 4;
    const double power = std::pow(10.0, std::floor(std::log10(rough)));
    for (const double step : {1.0, 2.0, 5.0}) {
      if (step * power >= rough) return step * power;
    }
    return 10 * power;
  }
};

// The same figure of all trainings, its upper left corner at x, y.
std::string chart(const std::vector<const TrainingPlot*>& plots, double x, double y) {
  TrainSpan steps, values;
  if (plots.front()->share) values.take(0), values.take(1);
  for (const TrainingPlot* plot : plots) {
    for (const TrainingCurve& curve : plot->curves) {
      for (const double step : curve.steps) steps.take(step);
      for (const double value : curve.values) values.take(value);
    }
  }
  const auto x_at = [&](double step) {
    return x + kPlotLeft + steps.share(step) * (kPlotRight - kPlotLeft);
  };
  const auto y_at = [&](double value) {
    return y + kPlotBottom - values.share(value) * (kPlotBottom - kPlotTop);
  };
  if (steps.low > steps.high) steps.take(0);  // no curve has a point yet
  std::string out = train_words(x + kPlotLeft, y + 14, "label", "start", plots.front()->title);
  double at = x + kPlotLeft;
  for (std::size_t c = 0; c < plots.front()->curves.size(); ++c) {
    const std::string& name = plots.front()->curves[c].name;
    out += train_words(at, y + 32, fmt::format("t{}", c % kCurveColours), "start", name);
    at += 7.0 * static_cast<double>(name.size()) + 12;
  }
  const double tick = values.tick();
  for (std::int64_t k = std::llround(std::ceil(values.low / tick));; ++k) {
    const double value = static_cast<double>(k) * tick;
    if (value > values.high + tick / 1e6) break;
    out += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", x + kPlotLeft,
                       y_at(value), x + kPlotRight);
    out += train_words(x + kPlotLeft - 6, y_at(value) + 4, "", "end", format_number(value));
  }
  const double step_tick = steps.tick();
  for (std::int64_t k = std::llround(std::ceil(steps.low / step_tick));; ++k) {
    const double step = static_cast<double>(k) * step_tick;
    if (step > steps.high) break;
    out += train_words(x_at(step), y + kPlotBottom + 16, "", "middle", fmt::format("{:.0f}", step));
  }
  for (const TrainingPlot* plot : plots) {
    for (std::size_t c = 0; c < plot->curves.size(); ++c) {
      const TrainingCurve& curve = plot->curves[c];
      std::string points;
      for (std::size_t i = 0; i < curve.steps.size(); ++i) {
        points += fmt::format("{}{:.1f},{:.1f}", i == 0 ? "" : " ", x_at(curve.steps[i]),
                              y_at(curve.values[i]));
      }
      out +=
          fmt::format("<polyline class=\"line s{}\" points=\"{}\"/>\n", c % kCurveColours, points);
    }
  }
  return out;
}

}  // namespace

Result<std::string> train_svg(const std::string& model, const std::vector<std::string>& folders) {
  std::string body;
  double y = kPageTop;
  for (const char* part : {kTrainedModel, kTrainedIndexer}) {
    std::vector<TrainingView> views;
    for (const std::string& folder : folders) {
      const std::string path = fmt::format("{}/{}.csv", folder, part);
      const auto text = read_text_file(path);
      if (!text) return text.error();
      auto view = training_view(*text, path);
      if (!view) return view.error();
      if (view->plots.empty()) {
        return bad_input(fmt::format("{}: holds no interval yet", path),
                         "wait for the first one, or leave the folder out");
      }
      views.push_back(std::move(*view));
    }
    body += train_words(kPageLeft, y + 12, "label", "start",
                        std::string_view(part) == kTrainedModel
                            ? "The model, over its steps"
                            : "The indexer, over its steps: warm-up, then sparse");
    y += kPartHigh;
    const std::size_t count = views.front().plots.size();
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<const TrainingPlot*> same;
      same.reserve(views.size());
      for (const TrainingView& view : views) same.push_back(&view.plots[i]);
      const std::size_t row = i / kAcross;
      body += chart(same, kPageLeft + kCellWide * static_cast<double>(i % kAcross),
                    y + kCellHigh * static_cast<double>(row));
    }
    const std::size_t rows = (count + kAcross - 1) / kAcross;
    y += kCellHigh * static_cast<double>(rows);
  }
  const double width = 2 * kPageLeft + kCellWide * static_cast<double>(kAcross);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
             "height=\"{1}\" role=\"img\">\n<title>Curves of training</title>\n{2}"
             "<rect class=\"page\" width=\"{0}\" height=\"{1}\" rx=\"6\"/>\n",
             width, y + 10, kTrainStyle) +
         train_words(kPageLeft, 30, "title", "start", fmt::format("{}, trained", model)) +
         train_words(kPageLeft, 50, "", "start",
                     folders.size() == 1 ? "1 training"
                                         : fmt::format("{} trainings, a line of each curve for "
                                                       "every one",
                                                       folders.size())) +
         body + "</svg>\n";
}

}  // namespace attnscope
