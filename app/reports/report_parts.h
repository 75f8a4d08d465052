// Parts of a report that say who is to blame, how much of each bound was used, and how errors went
// over the run; as JSON and as lines for a terminal.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/session/coverage.h"
#include "engine/session/session.h"
#include "engine/session/what_if/dump_invariants.h"

namespace attnscope {

// null where it is not finite.
nlohmann::json number_json(double value);
nlohmann::json blamed_json(const Summary& summary);
nlohmann::json budgets_json(const Summary& summary);
nlohmann::json invariants_json(const std::vector<Invariant>& invariants);
nlohmann::json coverage_json(const std::vector<CoveredPath>& coverage);
// By layer and step: forced = worst budget used by the layer's own ops, free = 1-cos of its output
// against ref.sim on its own history. null: not compared; "beyond": beyond any number.
nlohmann::json curves_json(const std::vector<StepRecord>& steps);

// Of the report's JSON; empty where there is nothing to say.
std::string format_blamed(const nlohmann::json& blamed);
std::string format_slack(const nlohmann::json& budgets);
std::string format_curves(const nlohmann::json& curves);
std::string format_invariants(const nlohmann::json& invariants);
// How many taps were compared and what came out, of a whole run: "2 706 taps compared, 12 wrong".
std::string taps_text(const Summary& summary);
// What the run has not exercised, and how a scenario would.
std::string format_coverage(const nlohmann::json& coverage);

}  // namespace attnscope
