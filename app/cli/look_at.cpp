#include "app/cli/look_at.h"

#include <fmt/format.h>

#include "app/common/wiring.h"
#include "engine/session/place.h"

namespace attnscope {

Result<Scenario> scenario_with_profile(const std::string& name, const std::string& profile,
                                       const ModelChoice& model) {
  auto scenario = load_scenario(name, model);
  if (!scenario || profile.empty()) return scenario;
  auto switches = profile_switches(profile);
  if (!switches) return switches.error();
  scenario->model.switches = *switches;
  return scenario;
}

Result<Scenario> scenario_of(const LookAt& at) {
  return scenario_with_profile(at.scenario, at.profile, at.model);
}

Result<std::unique_ptr<Session>> session_at(const LookAt& at, const Place& place,
                                            const std::function<void(const Session&)>& after_op) {
  auto scenario = scenario_of(at);
  if (!scenario) return scenario.error();
  SessionOptions options;
  options.references = References::kSim;
  options.lanes = at.lanes;
  options.threads = at.threads;
  options.checkpoint_every = 0;
  auto session = Session::create(*scenario, all_lanes(), options);
  if (!session) return session.error();
  Session& s = **session;
  while (!s.finished()) {
    if (auto ok = s.op(); !ok) return ok.error();
    if (!s.ran_any()) continue;
    if (after_op) after_op(s);
    const Place now = last_place(s);
    if (now == place) return session;
    if (now.step > place.step) break;
  }
  // Says which layers and ops there are.
  if (auto ok = go_to(s, place); !ok) return ok.error();
  return bad_input(fmt::format("{} was not reached", at.place), "name an earlier step");
}

}  // namespace attnscope
