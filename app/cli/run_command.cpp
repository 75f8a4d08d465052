#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/cli/look_at.h"
#include "app/cli/progress_bar.h"
#include "app/cli/writable.h"
#include "app/reports/chrome_trace.h"
#include "app/reports/report.h"
#include "app/text/interrupt.h"
#include "app/text/say.h"
#include "app/wiring/wiring.h"
#include "engine/family/family.h"
#include "engine/io/json_file.h"

namespace attnscope {
namespace {

// For known mistakes to be tried on the first wrong call.
constexpr double kExplainSeconds = 20;

// The report kept at `path` when it belongs to the same run; null otherwise.
nlohmann::json kept_report(const std::string& path, const std::string& key) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return nullptr;
  auto text = read_text_file(path, std::size_t{1} << 30);
  if (!text) return nullptr;
  nlohmann::json report = nlohmann::json::parse(*text, nullptr, false);
  const bool same = report.is_object() && report.value("format", "") == "attnscope-report" &&
                    report.value("version", 0) == kReportVersion &&
                    report.value("complete", false) && report.value("key", "") == key;
  return same ? report : nlohmann::json(nullptr);
}

void print(const nlohmann::json& report, bool as_json) {
  if (as_json) {
    say_json(report);
  } else {
    say("{}", Lines{format_report(report, is_terminal(STDOUT_FILENO))});
  }
}

}  // namespace

Result<as_status> run_command(const RunCommand& command) {
  auto scenario = scenario_with_profile(command.scenario, command.profile, command.model);
  if (!scenario) return scenario.error();
  if (auto ok = check_writable("--report", command.report); !ok) return ok.error();
  if (auto ok = check_writable("--timeline", command.timeline); !ok) return ok.error();
  const std::string key = run_key(*scenario, command.options);
  if (command.reuse && !command.report.empty() && command.timeline.empty()) {
    const nlohmann::json kept = kept_report(command.report, key);
    if (!kept.is_null()) {
      print(kept, command.json);
      if (!command.json) {
        say("kept result of an unchanged run; without --reuse it runs again\nreport: {}\n",
            std::filesystem::absolute(command.report).string());
      }
      return report_status(kept);
    }
  }
  const LaneRegistry lanes = all_lanes();
  catch_interrupts();
  RunOptions options = command.options;
  options.stopped = [] { return interrupted() != 0; };
  options.explain_seconds = kExplainSeconds;
  // Report and timeline have the time of every op; the table has none.
  options.session.op_times = command.json || !command.report.empty() || !command.timeline.empty();
  auto result = [&] {
    ProgressBar bar;
    return run_scenario(*scenario, lanes, options, [&](const RunProgress& p) { bar(p); });
  }();
  if (!result) return result.error();
  if (result->stopped) ended_early();
  if (result->device_error) {
    say(stderr, "the GPU failed, from its last rewind point on the CPU lane computed: {}\n",
        result->device_error->text());
  }
  const nlohmann::json report = make_report(*scenario, command.options, *result, key);
  // First the files: who reads the other end of a pipe may be gone.
  Result<void> written;
  if (!command.report.empty()) {
    written = write_text_file(command.report, json_text(report, 1) + "\n");
  }
  if (written && !command.timeline.empty()) {
    std::vector<TimedStep> steps;
    for (const StepRecord& r : result->steps) steps.push_back({r.step, r.tokens, &r.timings});
    written =
        write_timeline(command.timeline, steps, *model_graph(scenario->model), scenario->name);
  }
  print(report, command.json);
  if (!written) return written.error();
  if (!command.timeline.empty() && !command.json) {
    say("timeline: {}\n", std::filesystem::absolute(command.timeline).string());
  }
  if (!command.report.empty() && !command.json) {
    say("report: {}\n", std::filesystem::absolute(command.report).string());
  }
  const as_status status = report_status(report);
  if (auto ok = result->recount.hold(status == AS_OK); !ok) return ok.error();
  return status;
}

}  // namespace attnscope
