#include "app/reports/golden_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "app/text/format.h"
#include "app/text/say.h"
#include "app/text/xml_text.h"
#include "engine/io/json_fields.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

using nlohmann::json;

std::string counts_text(const GoldenOutcome& outcome) {
  std::string text;
  for (int v = 0; v < kGoldenVerdicts; ++v) {
    const auto n = outcome.comparison.counts[static_cast<std::size_t>(v)];
    if (n == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n,
                        golden_verdict_name(static_cast<GoldenVerdict>(v)));
  }
  return text;
}

json loosened_json(const std::vector<GoldenTolerance>& list) {
  json out = json::array();
  for (const GoldenTolerance& t : list) {
    out.push_back({{"bound", t.text()}, {"reason", t.reason}});
  }
  return out;
}

json outcome_json(const GoldenOutcome& o) {
  json counts = json::object();
  for (int v = 0; v < kGoldenVerdicts; ++v) {
    counts[golden_verdict_name(static_cast<GoldenVerdict>(v))] =
        o.comparison.counts[static_cast<std::size_t>(v)];
  }
  json findings = json::array();
  for (const GoldenFinding& f : o.comparison.findings) {
    if (f.verdict == GoldenVerdict::kEqual) continue;
    findings.push_back({{"where", f.where},
                        {"tap", f.tap},
                        {"verdict", golden_verdict_name(f.verdict)},
                        {"budget_used", json_number(f.budget_used)},
                        {"note", f.note}});
  }
  json origin = json::array();
  for (const GoldenChange& c : o.origin) {
    origin.push_back({{"what", c.what}, {"accepted", c.accepted}, {"received", c.received}});
  }
  return {{"name", o.name},
          {"about", o.about},
          {"state", golden_state_name(o.state)},
          {"sentence", o.sentence},
          {"lanes", o.lanes},
          {"seconds", o.seconds},
          {"received", o.wrote.empty() ? json(nullptr) : json(o.wrote)},
          {"counts", counts},
          {"findings", findings},
          {"loosened", loosened_json(o.loosened)},
          {"origin", origin}};
}

bool has_loosened(const GoldenReport& report) {
  for (const GoldenOutcome& o : report.outcomes) {
    if (!o.loosened.empty()) return true;
  }
  return false;
}

// One line a change, with the goldens that it is one of.
std::string origin_lines(const GoldenReport& report) {
  std::map<std::string, std::vector<std::string>> names;
  for (const GoldenOutcome& o : report.outcomes) {
    for (const GoldenChange& c : o.origin) {
      names[fmt::format("{} was {}, is {}", c.what, c.accepted, c.received)].push_back(o.name);
    }
  }
  std::string out = names.empty() ? "" : "\naccepted elsewhere\n";
  for (const auto& [change, of] : names) {
    const bool all = of.size() > 1 && of.size() == report.outcomes.size();
    out +=
        fmt::format("  {}: {}\n", all ? "all" : printable(fmt::format("{}", fmt::join(of, ", "))),
                    printable(change));
  }
  return out;
}

bool is_fault(GoldenState state) {
  return state != GoldenState::kPassed && state != GoldenState::kSkipped;
}

}  // namespace

std::string golden_totals(const GoldenReport& report) {
  std::string text;
  for (int s = 0; s < kGoldenStates; ++s) {
    const auto state = static_cast<GoldenState>(s);
    const std::int64_t n = report.count(state);
    if (n > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, golden_state_name(state));
  }
  text = fmt::format("{} goldens{}{}", report.outcomes.size(), text.empty() ? "" : ": ", text);
  const std::size_t orphans = report.orphans.size();
  if (orphans > 0) text += fmt::format("; {}", counted(orphans, "orphan", "orphans"));
  if (!report.not_run.empty()) {
    text += fmt::format("; INCOMPLETE: {} ended the run, {} did not run", report.interrupted,
                        report.not_run.size());
  }
  return text;
}

json golden_json(const GoldenReport& report) {
  json outcomes = json::array(), orphans = json::array(), counts = json::object();
  for (const GoldenOutcome& o : report.outcomes) outcomes.push_back(outcome_json(o));
  for (const GoldenOrphan& o : report.orphans)
    orphans.push_back({{"file", o.file}, {"why", o.why}});
  for (int s = 0; s < kGoldenStates; ++s) {
    const auto state = static_cast<GoldenState>(s);
    counts[golden_state_name(state)] = report.count(state);
  }
  return {{"format", "attnscope-golden-report"},
          {"version", kGoldenReportVersion},
          {"folder", report.folder},
          {"status", static_cast<int>(report.status())},
          {"complete", report.not_run.empty()},
          {"interrupted", report.not_run.empty() ? json(nullptr) : json(report.interrupted)},
          {"not_run", report.not_run},
          {"counts", counts},
          {"goldens", outcomes},
          {"orphans", orphans}};
}

std::string golden_text(const GoldenReport& report, bool colour) {
  const auto coloured = [&](GoldenState state) {
    std::string word = fmt::format("{:<8}", golden_state_name(state));
    if (!colour) return word;
    const int code = state == GoldenState::kPassed ? 32 : is_fault(state) ? 31 : 33;
    return painted(std::to_string(code), word);
  };
  std::string out;
  for (const GoldenOutcome& o : report.outcomes) {
    const std::string counts = counts_text(o);
    out += fmt::format("{} {:<28} {:>9}  {}\n", coloured(o.state), printable(o.name),
                       format_us(o.seconds * 1e6),
                       o.state == GoldenState::kPassed ? counts : printable(o.sentence));
    if (o.state != GoldenState::kPassed && !counts.empty())
      out += fmt::format("{:>9}{}\n", "", counts);
    if (!o.wrote.empty()) out += fmt::format("{:>9}received: {}\n", "", printable(o.wrote));
  }
  if (has_loosened(report)) {
    out += "\nloosened tolerances\n";
    for (const GoldenOutcome& o : report.outcomes) {
      for (const GoldenTolerance& t : o.loosened) {
        out += fmt::format("  {}: {}; {}\n", printable(o.name), printable(t.text()),
                           printable(t.reason));
      }
    }
  }
  out += origin_lines(report);
  if (!report.orphans.empty()) {
    out += "\norphans\n";
    for (const GoldenOrphan& o : report.orphans) {
      out += fmt::format("  {}: {}\n", printable(o.file), printable(o.why));
    }
  }
  return out + fmt::format("\n{}\n", golden_totals(report));
}

std::string golden_junit(const GoldenReport& report) {
  std::int64_t failures = static_cast<std::int64_t>(report.orphans.size()), errors = 0;
  errors += static_cast<std::int64_t>(report.not_run.size());
  double seconds = 0;
  for (const GoldenOutcome& o : report.outcomes) {
    errors += o.state == GoldenState::kBroken ? 1 : 0;
    failures += is_fault(o.state) && o.state != GoldenState::kBroken ? 1 : 0;
    seconds += o.seconds;
  }
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
      "<testsuite name=\"goldens\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" "
      "time=\"{:.3f}\">\n",
      report.outcomes.size() + report.orphans.size() + report.not_run.size(), failures, errors,
      report.count(GoldenState::kSkipped), seconds);
  for (const GoldenOutcome& o : report.outcomes) {
    out += fmt::format("<testcase classname=\"golden\" name=\"{}\" time=\"{:.3f}\"",
                       xml_text(o.name), o.seconds);
    if (o.state == GoldenState::kPassed) {
      out += "/>\n";
    } else if (o.state == GoldenState::kSkipped) {
      out += fmt::format("><skipped message=\"{}\"/></testcase>\n", xml_text(o.sentence));
    } else {
      const char* kind = o.state == GoldenState::kBroken ? "error" : "failure";
      std::string lines;
      for (const GoldenFinding& f : o.comparison.findings) {
        if (is_failure(f.verdict)) {
          lines += fmt::format("{} {}: {}: {}\n", f.where, f.tap, golden_verdict_name(f.verdict),
                               f.note);
        }
      }
      out += fmt::format("><{} type=\"{}\" message=\"{}\">{}</{}></testcase>\n", kind,
                         golden_state_name(o.state), xml_text(o.sentence), xml_text(lines), kind);
    }
  }
  for (const GoldenOrphan& o : report.orphans) {
    out += fmt::format(
        "<testcase classname=\"golden.orphan\" name=\"{}\" time=\"0\"><failure type=\"orphan\" "
        "message=\"{}\"/></testcase>\n",
        xml_text(o.file), xml_text(o.why));
  }
  for (const std::string& name : report.not_run) {
    out += fmt::format(
        "<testcase classname=\"golden\" name=\"{}\" time=\"0\"><error type=\"not run\" "
        "message=\"{} ended the run\"/></testcase>\n",
        xml_text(name), report.interrupted);
  }
  return out + "</testsuite>\n</testsuites>\n";
}

}  // namespace attnscope
