// What a study of cache formats found, as a table, as CSV and as a drawing.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/reports/cache_study.h"
#include "app/text/format.h"

namespace attnscope {
namespace {

constexpr double kStudyWide = 760, kStudyHigh = 420;
constexpr double kStudyLeft = 70, kStudyRight = 560, kStudyTop = 40, kStudyBottom = 370;
constexpr std::array kStudyColours = {"#1f6fb4", "#c4501b", "#2a8a4a", "#8a3fa0",
                                      "#a8861a", "#1a9aa0", "#b03060", "#555555",
                                      "#5060c0", "#d08c00", "#7a5230", "#0f5132"};

struct StudySpan {
  double low = 0, high = 0;  // logarithms
  double share(double x) const { return (x - low) / std::max(high - low, 1e-9); }
};

std::string study_words(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     text);
}

}  // namespace

std::string cache_study_text(const CacheStudy& study) {
  std::string out = fmt::format(
      "{}: rows of keys and values in each format, the last {} tokens of every length over the "
      "same "
      "rows\n\nbytes a token, all layers, at the longest length; error of attention's output, of "
      "its length\n",
      study.model, study.tokens);
  const auto table = [&](const char* what, const auto& cell) {
    out += fmt::format("{:<24}{:>8}{:>7}", what, "bytes", "1/");
    for (const CacheStudyPoint& p : study.formats.front().points) {
      out += fmt::format("{:>10}", p.length);
    }
    out += "\n";
    for (const CacheStudyFormat& f : study.formats) {
      const double smaller = study.formats.front().bytes() / f.bytes();
      out += fmt::format("{:<24}{:>8.0f}{:>7.2f}", f.name, f.bytes(), smaller);
      for (const CacheStudyPoint& p : f.points) out += cell(p);
      out += "\n";
    }
  };
  table("attention", [](const CacheStudyPoint& p) { return fmt::format("{:>10.2e}", p.error); });
  out += "\nhidden state behind the last layer, of its length\n";
  table("carried", [](const CacheStudyPoint& p) { return fmt::format("{:>10.2e}", p.carried); });
  out += fmt::format("\nsampled tokens that are others, of {}\n", study.tokens);
  table("changed", [](const CacheStudyPoint& p) { return fmt::format("{:>10}", p.changed); });
  for (const CacheStudyFormat& f : study.formats) {
    if (f.input_bytes == 0 || f.points.empty()) continue;
    out += fmt::format(
        "\n{}: {} bytes of inputs kept a token; {} products for {} tokens; of {} rows of the "
        "longest length, made anew, {} would have other codes\n",
        f.name, format_count(f.input_bytes), format_count(f.again_products), study.tokens,
        f.points.back().made_anew, f.points.back().other_codes);
  }
  return out;
}

std::string cache_study_csv(const CacheStudy& study) {
  std::string out = "format,bytes_per_token,length,error,largest,carried,changed,tokens\n";
  for (const CacheStudyFormat& f : study.formats) {
    for (const CacheStudyPoint& p : f.points) {
      out += fmt::format("{},{:.8g},{},{:.6g},{:.6g},{:.6g},{},{}\n", f.name, f.bytes_at(p.length),
                         p.length, p.error, p.largest, p.carried, p.changed, study.tokens);
    }
  }
  return out;
}

nlohmann::json cache_study_json(const CacheStudy& study) {
  nlohmann::json formats = nlohmann::json::array();
  for (const CacheStudyFormat& f : study.formats) {
    nlohmann::json points = nlohmann::json::array();
    for (const CacheStudyPoint& p : f.points) {
      points.push_back({{"length", p.length},
                        {"bytes_per_token", f.bytes_at(p.length)},
                        {"error", p.error},
                        {"largest", p.largest},
                        {"carried", p.carried},
                        {"changed", p.changed}});
      if (f.input_bytes == 0) continue;
      points.back()["made_anew"] = p.made_anew;
      points.back()["other_codes"] = p.other_codes;
    }
    formats.push_back({{"name", f.name},
                       {"bytes_per_token", f.bytes_per_token},
                       {"first_tokens", f.first_tokens},
                       {"first_token_bytes", f.first_bytes},
                       {"kept_input_bytes", f.input_bytes},
                       {"again_products", f.again_products},
                       {"points", std::move(points)}});
  }
  return {{"format", "attnscope-cache-study"},
          {"version", 1},
          {"model", study.model},
          {"tokens", study.tokens},
          {"formats", std::move(formats)}};
}

std::string cache_study_svg(const CacheStudy& study) {
  StudySpan x{1e9, -1e9}, y{1e9, -1e9};
  for (const CacheStudyFormat& f : study.formats) {
    for (const CacheStudyPoint& p : f.points) {
      const double at = std::log2(static_cast<double>(p.length));
      x = {std::min(x.low, at), std::max(x.high, at)};
      if (!(p.error > 0)) continue;
      const double error = std::log10(p.error);
      y = {std::min(y.low, std::floor(error)), std::max(y.high, std::ceil(error))};
    }
  }
  if (y.low > y.high) y = {-4, 0};  // nothing differs
  const auto x_at = [&](double length) {
    return kStudyLeft + x.share(std::log2(length)) * (kStudyRight - kStudyLeft);
  };
  const auto y_at = [&](double power) {
    return kStudyBottom - y.share(power) * (kStudyBottom - kStudyTop);
  };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<title>Error of attention over the length, by cache format</title>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      kStudyWide, kStudyHigh);
  out += study_words(kStudyLeft, 22, "start",
                     fmt::format("Error of attention's output over the length, {}", study.model));
  for (int power = static_cast<int>(y.low); power <= static_cast<int>(y.high); ++power) {
    out += fmt::format("<path stroke=\"#dddddd\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", kStudyLeft,
                       y_at(power), kStudyRight);
    out += study_words(kStudyLeft - 8, y_at(power) + 4, "end", fmt::format("1e{}", power));
  }
  for (const CacheStudyPoint& p : study.formats.front().points) {
    out += study_words(x_at(static_cast<double>(p.length)), kStudyBottom + 18, "middle",
                       std::to_string(p.length));
  }
  for (std::size_t i = 0; i < study.formats.size(); ++i) {
    const CacheStudyFormat& f = study.formats[i];
    const char* colour = kStudyColours[i % kStudyColours.size()];
    std::string path;
    double last = kStudyBottom;
    for (const CacheStudyPoint& p : f.points) {
      if (!(p.error > 0)) continue;
      last = y_at(std::log10(p.error));
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L",
                          x_at(static_cast<double>(p.length)), last);
    }
    const double label = kStudyTop + 18 * static_cast<double>(i);
    out += fmt::format("<path stroke=\"{0}\" stroke-width=\"3\" d=\"M{1:.1f} {2:.1f}h16\"/>\n",
                       colour, kStudyRight + 20, label);
    out += study_words(kStudyRight + 42, label + 4, "start", f.name);
    if (path.empty()) continue;
    out += fmt::format("<path fill=\"none\" stroke=\"{}\" stroke-width=\"2\" d=\"{}\"/>\n", colour,
                       path);
  }
  return out + "</svg>\n";
}

}  // namespace attnscope
