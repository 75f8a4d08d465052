// Parts of a report about scheduler and block manager: what they decided, held against the plain
// model of them, and whether what must hold of them did.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/reports/run.h"

namespace attnscope {

nlohmann::json decisions_json(const RunResult& result);
nlohmann::json guard_json(const RunResult& result);

// Of the report's JSON; decisions: the counts, and what was decided otherwise.
std::string format_decisions(const nlohmann::json& decisions);
std::string format_guard(const nlohmann::json& guard);

}  // namespace attnscope
