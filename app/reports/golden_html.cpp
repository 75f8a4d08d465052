// The HTML report of a run of goldens: one file, styles and pictures (SVG) in it, no script.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/reports/golden_report.h"
#include "app/reports/golden_review.h"
#include "app/text/format.h"
#include "app/text/xml_text.h"

namespace attnscope {
namespace {

constexpr std::size_t kMostTaps = 12;  // of a golden, drawn in full
constexpr std::size_t kMostDrawn = 64;
constexpr double kWidth = 560, kHeight = 120, kMargin = 8;

constexpr const char* kStyle = R"(<style>
:root{--ink:#1c1e21;--soft:#667;--paper:#fff;--line:#d8dce2;--good:#1a7f4b;--bad:#b3261e;
--late:#946200;
--a:#2b6cb0;--b:#c05621}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ec;--soft:#9aa3af;--paper:#16181c;--line:#343a43;
--good:#4cc38a;--bad:#ff7b72;--late:#e0b252;--a:#7ab7ff;--b:#ffb077}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1000px;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin:2rem 0 .2rem}
table{border-collapse:collapse;margin:.5rem 0}td,th{padding:.2rem .8rem .2rem 0;text-align:left;
border-bottom:1px solid var(--line);vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}
.passed{color:var(--good)}.failed,.broken,.stale{color:var(--bad)}.new,.skipped{color:var(--late)}
.soft{color:var(--soft)}code{font:13px ui-monospace,monospace}
svg{max-width:100%;height:auto;border:1px solid var(--line);border-radius:4px}
.a{fill:var(--a);stroke:var(--a)}.b{fill:none;stroke:var(--b)}.axis{stroke:var(--line)}
text{fill:var(--soft);font:11px system-ui,sans-serif}
</style>
)";

// Samples of both sides over their place in the tensor: dots accepted, rings received.
std::string samples_picture(const GoldenTap& a, const GoldenTap& b) {
  const auto range = sample_range(a, b);
  if (!range) return {};
  double low = range->first, high = range->second;
  if (low == high) {
    low -= 1;
    high += 1;
  }
  const auto x = [&](std::int64_t at) {
    const auto n = static_cast<double>(std::max<std::int64_t>(1, a.elements()));
    return kMargin + (kWidth - 2 * kMargin) * static_cast<double>(at) / n;
  };
  const auto y = [&](double v) {
    return kMargin + (kHeight - 2 * kMargin) * (high - v) / (high - low);
  };
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "aria-label=\"samples\">"
      "<text x=\"{2}\" y=\"14\">{3}</text><text x=\"{2}\" y=\"{4}\">{5}</text>",
      kWidth, kHeight, kMargin, format_number(high), kHeight - 4, format_number(low));
  if (low < 0 && high > 0) {
    out += fmt::format("<line class=\"axis\" x1=\"0\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>",
                       kWidth, y(0), y(0));
  }
  const auto dots = [&](const GoldenTap& t, const char* kind, double radius) {
    for (std::size_t i = 0; i < t.at.size(); ++i) {
      if (!std::isfinite(t.values[i])) continue;
      out += fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", kind,
                         x(t.at[i]), y(t.values[i]), radius);
    }
  };
  dots(a, "a", 2);
  dots(b, "b", 4);
  return out +
         "</svg>\n<p class=\"soft\">samples over their place in the tensor: dots accepted, "
         "rings received</p>\n";
}

void add_row(std::string& out, const std::string& what, const std::string& accepted,
             const std::string& received, const std::string& delta) {
  out += fmt::format(
      "<tr><td>{}</td><td class=\"n\"><code>{}</code></td><td class=\"n\"><code>{}</code></td>"
      "<td class=\"n\">{}</td></tr>\n",
      xml_text(what), xml_text(accepted), xml_text(received), xml_text(delta));
}

void add_tap(const GoldenReviewTap& tap, std::string& out) {
  out += fmt::format("<h3><code>{} {}</code></h3>\n<p>{}{}</p>\n", xml_text(tap.finding.where),
                     xml_text(tap.finding.tap), golden_verdict_name(tap.finding.verdict),
                     tap.finding.note.empty() ? "" : ": " + xml_text(tap.finding.note));
  const GoldenTap *a = tap.accepted, *b = tap.received;
  out += "<table><tr><th></th><th>accepted</th><th>received</th><th>difference</th></tr>\n";
  if (tap.deltas.empty()) {
    for (const GoldenSides& sides : golden_sides(tap, kMostDrawn)) {
      add_row(out, sides.what, sides.accepted, sides.received, "");
    }
  }
  for (const GoldenDelta& d : tap.deltas) {
    add_row(out, d.what, format_number(d.accepted), format_number(d.received),
            format_number(d.received - d.accepted));
  }
  out += "</table>\n";
  if (a != nullptr && b != nullptr && a->stats && b->stats) out += samples_picture(*a, *b);
}

void add_outcome(const GoldenOutcome& o, std::string& out) {
  out += fmt::format(
      "<h2 id=\"{0}\"><span class=\"{1}\">{1}</span> {0}</h2>\n<p class=\"soft\">{2}</p>\n"
      "<p>{3}</p>\n",
      xml_text(o.name), golden_state_name(o.state), xml_text(o.about), xml_text(o.sentence));
  if (o.state != GoldenState::kFailed && o.state != GoldenState::kStale) return;
  GoldenReview review;
  review.accepted = o.accepted;
  review.received = o.received;
  link_taps(review);
  out += fmt::format("<p class=\"soft\">accepted: {}<br>received: {}</p>\n",
                     xml_text(origin_text(o.accepted.origin)),
                     xml_text(origin_text(o.received.origin)));
  for (std::size_t i = 0; i < std::min(kMostTaps, review.taps.size()); ++i) {
    add_tap(review.taps[i], out);
  }
  if (review.taps.size() > kMostTaps) {
    out +=
        fmt::format("<p>and {} more, all in the JSON report</p>\n", review.taps.size() - kMostTaps);
  }
}

}  // namespace

std::string golden_html(const GoldenReport& report) {
  const std::string totals = golden_totals(report);
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>goldens</title>\n" +
      std::string(kStyle) + "</head><body>\n<h1>" + xml_text(totals) + "</h1>\n" +
      "<table><tr><th>golden</th><th>state</th><th>values</th><th>worst of its budget</th>"
      "<th>seconds</th></tr>\n";
  for (const GoldenOutcome& o : report.outcomes) {
    double worst = 0;
    for (const GoldenFinding& f : o.comparison.findings) worst = std::max(worst, f.budget_used);
    out += fmt::format(
        "<tr><td><a href=\"#{0}\">{0}</a></td><td class=\"{1}\">{1}</td><td class=\"n\">{2}</td>"
        "<td class=\"n\">{3}</td><td class=\"n\">{4:.2f}</td></tr>\n",
        xml_text(o.name), golden_state_name(o.state), o.received.taps.size(),
        o.comparison.findings.empty() ? "" : format_number(worst), o.seconds);
  }
  out += "</table>\n";
  std::string loosened;
  for (const GoldenOutcome& o : report.outcomes) {
    for (const GoldenTolerance& t : o.loosened) {
      loosened += fmt::format("<tr><td>{}</td><td><code>{}</code></td><td>{}</td></tr>\n",
                              xml_text(o.name), xml_text(t.text()), xml_text(t.reason));
    }
  }
  if (!loosened.empty()) {
    out +=
        "<h2>Loosened "
        "tolerances</h2>\n<table><tr><th>golden</th><th>bound</th><th>reason</th></tr>\n" +
        loosened + "</table>\n";
  }
  if (!report.orphans.empty()) {
    out += "<h2>Orphans</h2>\n<ul>\n";
    for (const GoldenOrphan& o : report.orphans) {
      out += fmt::format("<li><code>{}</code>: {}</li>\n", xml_text(o.file), xml_text(o.why));
    }
    out += "</ul>\n";
  }
  for (const GoldenOutcome& o : report.outcomes) add_outcome(o, out);
  return out + "</body></html>\n";
}

}  // namespace attnscope
