#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "app/reports/scale_report.h"
#include "app/text/format.h"
#include "app/text/xml_text.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

constexpr double kPageWidth = 860, kPageHeight = 460;
constexpr double kLeft = 76, kRight = 600, kTop = 74, kBottom = 396;
constexpr double kLabelHeight = 34;  // two lines of text

// Colours that differ in lightness too, on white and on black.
constexpr char kPageStyle[] =
    "<style>\n"
    "text{font:13px system-ui,sans-serif;fill:#3b3f46}\n"
    ".title{font-size:16px;font-weight:600;fill:#16181d}.label{fill:#16181d}.soft{font-size:12px}\n"
    ".page{fill:#fff}.grid{stroke:#e2e4e8;stroke-width:1}.axis{stroke:#8a8f98;stroke-width:1}\n"
    ".line{fill:none;stroke-width:2.2;stroke-linejoin:round}.lead{stroke:#8a8f98;fill:none}\n"
    ".s0{stroke:#1f6fd0}.s1{stroke:#c8501a}.s2{stroke:#0f8a5f}.s3{stroke:#6a3fb5}\n"
    ".d0{fill:#1f6fd0}.d1{fill:#c8501a}.d2{fill:#0f8a5f}.d3{fill:#6a3fb5}\n"
    "@media (prefers-color-scheme: dark){\n"
    "text{fill:#b6bcc6}.title,.label{fill:#eef0f3}.page{fill:#14171c}.grid{stroke:#2b3038}\n"
    ".s0{stroke:#5aa2f5}.s1{stroke:#f08a54}.s2{stroke:#3cc492}.s3{stroke:#b193f2}\n"
    ".d0{fill:#5aa2f5}.d1{fill:#f08a54}.d2{fill:#3cc492}.d3{fill:#b193f2}\n"
    "}\n"
    "</style>\n";
constexpr std::size_t kColours = 4;

std::string text_at(double x, double y, const char* classes, const char* anchor,
                    const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n",
                     x, y, classes, anchor, xml_text(text));
}

// "20 us", "5 ms"
std::string time_text(double us) {
  if (us >= 1e6) return fmt::format("{:g} s", us / 1e6);
  if (us >= 1e3) return fmt::format("{:g} ms", us / 1e3);
  return fmt::format("{:g} us", us);
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  void take(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  // 0 .. 1 on a logarithmic axis.
  double share(double v) const {
    return high > low ? std::log(v / low) / std::log(high / low) : 0.5;
  }
};

// 1, 2 and 5 times powers of ten, from the last one below to the first one above.
std::vector<double> ticks_around(const Range& range) {
  std::vector<double> ticks;
  for (int power = -3; power < 10; ++power) {
    for (const double step : {1.0, 2.0, 5.0}) ticks.push_back(step * std::pow(10.0, power));
  }
  const auto first = std::prev(std::ranges::upper_bound(ticks, range.low));
  const auto last = std::ranges::lower_bound(ticks, range.high * 1.0001);
  return {first, std::next(last)};
}

class Chart {
 public:
  explicit Chart(const ScaleResult& result) : result_(result) {
    Range us;
    for (const ScaleLine& line : result.lines) {
      for (const ScalePoint& point : line.points) {
        x_.take(static_cast<double>(point.context));
        us.take(point.us);
      }
    }
    ticks_ = ticks_around(us);
    y_ = {ticks_.front(), ticks_.back()};
  }

  std::string draw() const {
    const ScaleHow& how = result_.how;
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" role=\"img\">\n<title>Time of a call over context</title>\n{2}"
        "<rect class=\"page\" width=\"{0}\" height=\"{1}\" rx=\"6\"/>\n",
        kPageWidth, kPageHeight, kPageStyle);
    out += text_at(
        20, 30, "title", "start",
        fmt::format("One decode token over its context, {} sizes, lane {}", how.model, how.lane));
    out += text_at(20, 52, "soft", "start",
                   fmt::format("{}; {}, {}, {}", scale_machine(how),
                               counted(how.requests, "request", "requests"),
                               scale_statistic(how.rounds), how.date));
    return out + axes() + lines() + labels() + "</svg>\n";
  }

 private:
  double x_at(double context) const { return kLeft + x_.share(context) * (kRight - kLeft); }
  double y_at(double us) const { return kBottom - y_.share(us) * (kBottom - kTop); }

  std::string axes() const {
    std::string out;
    const bool all = ticks_.size() <= 10;
    for (const double tick : ticks_) {
      const double exponent = std::log10(tick);
      const bool decade = std::abs(exponent - std::round(exponent)) < 1e-9;
      if (!all && !decade) continue;
      const double y = y_at(tick);
      out +=
          fmt::format("<path class=\"grid\" d=\"M{0:.1f} {2:.1f}H{1:.1f}\"/>\n", kLeft, kRight, y);
      out += text_at(kLeft - 8, y + 4, "soft", "end", time_text(tick));
    }
    const auto low = std::max<std::int64_t>(1, std::llround(x_.low));
    for (std::int64_t context = low; static_cast<double>(context) <= x_.high; context *= 2) {
      const double x = x_at(static_cast<double>(context));
      out +=
          fmt::format("<path class=\"grid\" d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/>\n", x, kTop, kBottom);
      out += text_at(x, kBottom + 18, "soft", "middle", short_count(context));
    }
    out += fmt::format(
        "<path class=\"axis\" d=\"M{0:.1f} {1:.1f}V{2:.1f}H{3:.1f}\" "
        "fill=\"none\"/>\n",
        kLeft, kTop, kBottom, kRight);
    return out +
           text_at((kLeft + kRight) / 2, kBottom + 42, "label", "middle", "context (tokens)") +
           fmt::format(
               "<text class=\"label\" text-anchor=\"middle\" transform=\"translate(18 "
               "{:.1f}) rotate(-90)\">time of a call</text>\n",
               (kTop + kBottom) / 2);
  }

  std::string lines() const {
    std::string out;
    for (std::size_t i = 0; i < result_.lines.size(); ++i) {
      std::string points, dots;
      for (const ScalePoint& p : result_.lines[i].points) {
        const double x = x_at(static_cast<double>(p.context)), y = y_at(p.us);
        points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", x, y);
        dots += fmt::format("<circle class=\"d{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\"/>\n",
                            i % kColours, x, y);
      }
      if (points.empty()) continue;
      out += fmt::format("<polyline class=\"line s{}\" points=\"{}\"/>\n{}", i % kColours, points,
                         dots);
    }
    return out;
  }

  // What a line's label says below its name.
  static std::string slope_text(const ScaleLine& line) {
    if (!line.fit) return "";
    if (line.flat) return fmt::format("flat: max/min {:.2f}", line.fit->spread);
    return fmt::format("{} ns a {}, R2 {}", format_number(slope_ns(line)), slope_unit(line),
                       line.fit->r2 ? fmt::format("{:.4f}", *line.fit->r2) : "-");
  }

  // Beside the ends of lines, pushed apart where these lie close.
  std::string labels() const {
    struct Label {
      std::size_t line;
      double end, y;
    };
    std::vector<Label> labels;
    for (std::size_t i = 0; i < result_.lines.size(); ++i) {
      if (result_.lines[i].points.empty()) continue;
      const double end = y_at(result_.lines[i].points.back().us);
      labels.push_back({i, end, end});
    }
    std::ranges::sort(labels, {}, &Label::end);
    double free = kTop;
    for (Label& label : labels) {
      label.y = std::max(label.y, free);
      free = label.y + kLabelHeight;
    }
    double limit = kBottom;
    for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
      label->y = std::min(label->y, limit);
      limit = label->y - kLabelHeight;
    }
    std::string out;
    for (const Label& label : labels) {
      const ScaleLine& line = result_.lines[label.line];
      const double x = x_at(static_cast<double>(line.points.back().context));
      out += fmt::format(
          "<path class=\"lead\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n<circle class=\"d{}\" "
          "cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\"/>\n",
          x + 5, label.end, kRight + 20, label.y, label.line % kColours, kRight + 26, label.y);
      out += text_at(kRight + 36, label.y + 1, "label", "start", scale_title(line));
      out += text_at(kRight + 36, label.y + 16, "soft", "start", slope_text(line));
    }
    return out;
  }

  const ScaleResult& result_;
  Range x_, y_;
  std::vector<double> ticks_;
};

}  // namespace

std::string scale_svg(const ScaleResult& result) { return Chart(result).draw(); }

}  // namespace attnscope
