#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "app/cli/guilty_token.h"
#include "app/cli/look_at.h"
#include "app/cli/look_commands.h"
#include "app/reports/report_parts.h"
#include "app/reports/what_if_run.h"
#include "app/text/format.h"
#include "app/text/say.h"
#include "app/views/op_order.h"
#include "app/wiring/wiring.h"
#include "engine/capture/capture.h"
#include "engine/io/nearest.h"
#include "engine/session/place.h"
#include "engine/session/what_if/row_alone.h"
#include "engine/session/what_if/what_if.h"
#include "engine/session/what_if/what_if_after.h"
#include "reference/register.h"

namespace attnscope {
namespace {

using nlohmann::json;

json held_json(const std::optional<Held>& held) {
  if (!held) return nullptr;
  return {{"budget_used", number_json(held->budget_used)},
          {"beyond", held->beyond},
          {"elements", held->elements},
          {"tap", held->worst_tap}};
}

json row_json(const WhatIf& r) {
  return {{"change", r.change},
          {"sentence", r.sentence},
          {"error", r.error.empty() ? json(nullptr) : json(r.error)},
          {"introduced", held_json(r.introduced)},
          {"from_exact", held_json(r.from_exact)},
          {"from_history", r.from_history ? number_json(*r.from_history) : json(nullptr)},
          {"right", r.right()}};
}

std::string share(const std::optional<Held>& held) {
  if (!held) return "-";
  return fmt::format("{:.3g} %", held->budget_used * 100);
}

void print_head() {
  say("{:<30} {:<48} {:>10} {:>10} {:>10}\n", "", "", "ref.sim", "ref.exact", "history");
}

void print_row(const WhatIf& r) {
  say("{:<30} {:<48} ", r.change, r.sentence);
  if (!r.error.empty()) {
    say("{}\n", r.error);
    return;
  }
  say("{:>10} {:>10} {:>10}", share(r.introduced), share(r.from_exact),
      r.from_history ? fmt::format("{:.2g}", *r.from_history) : "-");
  if (r.introduced && !r.introduced->right()) {
    say("  wrong: {} of {} elements of {} beyond the tolerance", r.introduced->beyond,
        r.introduced->elements, r.introduced->worst_tap);
  }
  say("\n");
}

Result<std::vector<WhatIfAfter>> run_after(const WhatIfCommand& command, const Place& place,
                                           const LaneRegistry& registry) {
  auto scenario = scenario_of(command.at);
  if (!scenario) return scenario.error();
  SessionOptions options;
  options.lanes = command.at.lanes;
  options.threads = command.at.threads;
  return what_if_after(
      *scenario, registry, options, place,
      {command.changes, command.with, reference::fp32_lane(), command.once, command.steps});
}

json after_json(const std::vector<WhatIfAfter>& results) {
  json rows = json::array();
  for (const WhatIfAfter& r : results) {
    json steps = json::array();
    for (const Drift& d : r.steps) {
      steps.push_back({{"step", d.step},
                       {"from_sim", number_json(d.from_sim)},
                       {"from_exact", d.from_exact ? number_json(*d.from_exact) : json(nullptr)}});
    }
    rows.push_back({{"change", r.change},
                    {"sentence", r.sentence},
                    {"error", r.error.empty() ? json(nullptr) : json(r.error)},
                    {"steps", steps}});
  }
  return rows;
}

// A paragraph a change, a line a step.
void print_after(const std::vector<WhatIfAfter>& results, bool once) {
  say("\nWith everything after it, {}; 1-cos of the layers' outputs, the worst of a step:\n",
      once ? "this op changed alone" : "and all later ops of its kind changed");
  for (const WhatIfAfter& r : results) {
    if (!r.error.empty()) {
      say("{:<30} {}\n", r.change, r.error);
      continue;
    }
    say("{:<30} {:<6}{:>12}{:>12}\n", r.change, "step", "ref.sim", "ref.exact");
    for (const Drift& d : r.steps) {
      say("{:<30} {:<6}{:>12.2g}{:>12}\n", "", d.step, d.from_sim,
          d.from_exact ? fmt::format("{:.2g}", *d.from_exact) : "-");
    }
  }
  say("\n{}\n", what_if_after_sentence(results));
}

// Which token to compute alone: as asked; else the one with the worst element, else the last.
Result<std::int64_t> token_alone(const WhatIfCommand& command, const Session& session,
                                 const WhatIf& ran) {
  if (command.chosen.asked()) return row_in_step(session, command.chosen);
  const std::int64_t last = session.metadata().num_tokens_in_step() - 1;
  if (command.token > last) {
    return bad_input(fmt::format("token {} is not there", command.token),
                     fmt::format("tokens of step {}: 0 to {}", last_place(session).step, last));
  }
  return command.token >= 0 ? command.token : token_to_run_alone(session, ran);
}

// Of a token without a place: at the first op that is wrong for it.
Result<as_status> what_if_of_token(const WhatIfCommand& command) {
  if (!command.chosen.asked()) {
    return usage_error("a place is needed: STEP/LAYER/OP",
                       "without one, --request R --position P runs the first op that is wrong for "
                       "that token");
  }
  auto found = guilty_token(command.at, command.chosen);
  if (!found) return found.error();
  const TokenGuilt* guilt = found->guilt();
  // Its inputs, and the lane that ran it, are not all in a capture.
  const bool can_run = guilt != nullptr && !is_capture_folder(command.at.scenario);
  if (!can_run) {
    if (command.at.json) {
      say_json(guilty_token_json(*found));
    } else {
      for (const std::string& line : found->lines()) say("{}\n", line);
      if (guilt != nullptr) {
        say("a capture cannot run it again; its scenario can, with the lane that ran it: attnscope "
            "what-if {} {}{}\n",
            found->scenario.empty() ? "SCENARIO" : found->scenario, place_text(guilt->place),
            guilt->token < 0 ? std::string() : fmt::format(" --token {}", guilt->token));
      }
    }
    return guilt == nullptr ? AS_OK : AS_MISMATCH;
  }
  WhatIfCommand there = command;
  there.at.place = place_text(guilt->place);
  there.chosen = {};
  there.token = guilt->token;
  if (!command.at.json) {
    for (const std::string& line : found->lines()) say("{}\n", line);
    say("\n{}\n", there.at.place);
  }
  return what_if_command(there);
}

}  // namespace

Result<as_status> what_if_command(const WhatIfCommand& command) {
  if (command.at.place.empty()) return what_if_of_token(command);
  const auto place = parse_place(command.at.place);
  if (!place) return place.error();
  const LaneRegistry registry = all_lanes();
  for (const std::string& name : command.with) {
    if (registry.find(name) == nullptr) {
      return usage_error(fmt::format("--with {}: unknown lane", name),
                         did_you_mean(name, registry.names()) + "'attnscope lanes' lists them");
    }
  }
  UnquantisedRows unquantised(place->layer);
  auto session = session_at(command.at, *place, [&](const Session& s) { unquantised.op_done(s); });
  if (!session) return session.error();
  auto results = what_if(**session, registry, {command.with, reference::fp32_lane(), &unquantised});
  if (!results) return results.error();
  const std::string sentence = what_if_sentence(*results);
  auto token = token_alone(command, **session, results->front());
  if (!token) return token.error();
  const RowAlone alone = run_row_alone(**session, *token);
  auto after = command.after ? std::optional(run_after(command, *place, registry)) : std::nullopt;
  if (after && !*after) return after->error();
  json rows = json::array();
  if (!command.at.json) print_head();
  for (const WhatIf& r : *results) {
    rows.push_back(row_json(r));
    if (!command.at.json) print_row(r);
  }
  json out = {{"format", "attnscope-what-if"},
              {"version", 3},
              {"place", command.at.place},
              {"changes", rows},
              {"sentence", sentence}};
  if (!command.at.json) say("\n{}\n", sentence);
  if (alone.possible) {
    out["row_alone"] = {{"token", alone.token},
                        {"elements", alone.elements},
                        {"differing", alone.differing},
                        {"worst_ulp", alone.worst_ulp}};
    if (!command.at.json) {
      say("token {} alone: {}\n", alone.token,
          alone.elements == 0 ? "it writes nothing"
          : alone.differing == 0
              ? "the same bits as in its batch"
              : fmt::format("{} of {} elements differ from those in its batch, by up to {} "
                            "steps ({})",
                            alone.differing, alone.elements, alone.worst_ulp, alone.worst));
    }
  }
  bool after_is_nan = false;
  if (after) {
    after_is_nan = no_number(**after);
    out["after"] = {{"once", command.once},
                    {"changes", after_json(**after)},
                    {"sentence", what_if_after_sentence(**after)}};
    if (!command.at.json) print_after(**after, command.once);
  }
  if (command.at.json) say_json(out);
  return results->front().right() && !after_is_nan ? AS_OK : AS_MISMATCH;
}

}  // namespace attnscope
