// What `attnscope golden` writes of a run: text for a terminal, JSON, JUnit XML for a build server,
// and one HTML file with everything in it, pictures included.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/golden/golden_run.h"

namespace attnscope {

inline constexpr int kGoldenReportVersion = 1;

nlohmann::json golden_json(const GoldenReport& report);
std::string golden_text(const GoldenReport& report, bool colour);
std::string golden_junit(const GoldenReport& report);
std::string golden_html(const GoldenReport& report);

// "3 goldens: 2 passed, 1 failed; 1 orphan".
std::string golden_totals(const GoldenReport& report);

}  // namespace attnscope
