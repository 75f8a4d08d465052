#include "app/cli/look_at.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/reports/what_if_run.h"
#include "app/text/say.h"
#include "app/views/stop_condition.h"
#include "app/wiring/wiring.h"
#include "engine/capture/capture.h"
#include "engine/family/models.h"

namespace attnscope {

std::string check_profile(const std::string& profile) {
  const auto switches = profile_switches(profile);
  return switches ? "" : switches.error().message + "; " + switches.error().hint;
}

Result<Scenario> scenario_with_profile(const std::string& name, const std::string& profile,
                                       const ModelChoice& model) {
  auto scenario = load_scenario(name, model);
  if (!scenario) return scenario;
  for (std::size_t i = 0; i < scenario->stops.size(); ++i) {
    const auto stop = StopCondition::parse(scenario->stops[i].when);
    if (stop) continue;
    return bad_input(fmt::format("{}: stops[{}]: {}", scenario->path, i, stop.error().message),
                     stop.error().hint);
  }
  if (!scenario->left_out.empty()) {
    say(stderr, "attnscope: --model leaves out what {} says of its own model: {}\n", scenario->path,
        fmt::join(scenario->left_out, ", "));
  }
  if (profile.empty()) return scenario;
  if (auto ok = set_profile(scenario->model, profile); !ok) return ok.error();
  return scenario;
}

Result<Scenario> scenario_of(const LookAt& at) {
  return scenario_with_profile(at.scenario, at.profile, at.model);
}

SessionOptions session_options(const LookAt& at) {
  SessionOptions options;
  options.references = References::kSim;
  options.lanes = at.lanes;
  options.threads = at.threads;
  options.rewind_every = 0;
  return options;
}

Result<std::unique_ptr<Session>> session_at(
    const LookAt& at, const Place& place, const std::function<void(const Session&)>& after_op,
    const std::function<Result<void>(const Scenario&)>& check) {
  if (is_capture_folder(at.scenario)) {
    return bad_input(fmt::format("{} is a capture, and this runs a scenario", at.scenario),
                     "name its scenario; of a capture 'attnscope why CAPTURE --request R "
                     "--position P' finds the first op that is wrong for a token");
  }
  auto scenario = scenario_of(at);
  if (!scenario) return scenario.error();
  if (check) {
    if (auto ok = check(*scenario); !ok) return ok.error();
  }
  return run_to_op(*scenario, all_lanes(), session_options(at), place, [&](Session& s) {
    if (after_op) after_op(s);
    return true;
  });
}

}  // namespace attnscope
