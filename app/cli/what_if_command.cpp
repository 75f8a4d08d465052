#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/cli/look_at.h"
#include "app/cli/look_commands.h"
#include "app/common/format.h"
#include "app/common/wiring.h"
#include "engine/session/row_alone.h"
#include "engine/session/what_if.h"

namespace attnscope {
namespace {

using nlohmann::json;

json number(double v) { return std::isfinite(v) ? json(v) : json(nullptr); }

// 1-cos of every layer's output against ref.sim on its own history, worst over the step.
Result<std::vector<double>> drift_of(const WhatIfCommand& command, const Place& place,
                                     const std::vector<std::string>& lanes) {
  auto scenario = scenario_of(command.at);
  if (!scenario) return scenario.error();
  SessionOptions options;
  options.references = References::kSim;
  options.lanes = lanes;
  options.threads = command.at.threads;
  options.checkpoint_every = 0;
  auto session = Session::create(*scenario, all_lanes(), options);
  if (!session) return session.error();
  while (!(*session)->finished() && (*session)->cursor().step <= place.step) {
    if (auto ok = (*session)->step(); !ok) return ok.error();
  }
  std::vector<double> drift;
  for (const TapResult& r : (*session)->history().back().results) {
    if (r.op == AS_OP_RESIDUAL && r.inherited) drift.push_back(r.inherited->cosine);
  }
  return drift;
}

}  // namespace

Result<as_status> what_if_command(const WhatIfCommand& command) {
  const auto place = parse_place(command.at.place);
  if (!place) return place.error();
  const LaneRegistry registry = all_lanes();
  for (const std::string& name : command.with) {
    if (registry.find(name) == nullptr) {
      return usage_error(fmt::format("--with {}: unknown lane", name),
                         "`attnscope lanes` lists them");
    }
  }
  auto session = session_at(command.at, *place, {});
  if (!session) return session.error();
  auto results = what_if(**session, registry, command.with);
  if (!results) return results.error();
  const std::int64_t last = (*session)->metadata().num_tokens_in_step() - 1;
  const RowAlone alone = run_row_alone(**session, last);
  json rows = json::array();
  for (const WhatIf& r : *results) {
    rows.push_back({{"change", r.change},
                    {"sentence", r.sentence},
                    {"error", r.error.empty() ? json(nullptr) : json(r.error)},
                    {"budget_used", number(r.budget_used)},
                    {"beyond", r.beyond},
                    {"elements", r.elements},
                    {"tap", r.worst_tap},
                    {"right", r.right()}});
    if (command.at.json) continue;
    const std::string outcome =
        !r.error.empty() ? r.error
        : r.right()      ? fmt::format("right, {:.0f} % of the budget", r.budget_used * 100)
                    : fmt::format("wrong: {} of {} elements of {} beyond the tolerance", r.beyond,
                                  r.elements, r.worst_tap);
    fmt::print("{:<30} {:<46} {}\n", r.change, r.sentence, outcome);
  }
  json out = {{"format", "attnscope-what-if"},
              {"version", 1},
              {"place", command.at.place},
              {"changes", rows},
              {"sentence", what_if_sentence(*results)}};
  if (!command.at.json) fmt::print("\n{}\n", what_if_sentence(*results));
  if (alone.possible) {
    out["row_alone"] = {{"token", alone.token},
                        {"elements", alone.elements},
                        {"differing", alone.differing},
                        {"worst_ulp", alone.worst_ulp}};
    if (!command.at.json) {
      fmt::print("token {} alone: {}\n", alone.token,
                 alone.differing == 0
                     ? "the same bits as in its batch"
                     : fmt::format("{} of {} elements differ from those in its batch, by up to {} "
                                   "steps ({})",
                                   alone.differing, alone.elements, alone.worst_ulp, alone.worst));
    }
  }
  if (command.after && !command.with.empty()) {
    std::vector<std::string> lanes = command.at.lanes;
    lanes.push_back(fmt::format("{}={}", as_op_find(place->op)->name, command.with.front()));
    auto before = drift_of(command, *place, command.at.lanes);
    auto after = drift_of(command, *place, lanes);
    if (!before) return before.error();
    if (!after) return after.error();
    json drifts = json::array();
    for (std::size_t i = 0; i < std::min(before->size(), after->size()); ++i) {
      drifts.push_back({{"as_it_ran", number((*before)[i])}, {"changed", number((*after)[i])}});
      if (!command.at.json) {
        fmt::print("{}. layer's output, free-running 1-cos: {:.2g} as it ran, {:.2g} with {}\n",
                   i + 1, (*before)[i], (*after)[i], lanes.back());
      }
    }
    out["after"] = drifts;
  }
  if (command.at.json) fmt::print("{}\n", out.dump(1));
  return results->front().right() ? AS_OK : AS_MISMATCH;
}

}  // namespace attnscope
