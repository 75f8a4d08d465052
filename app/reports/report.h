// A run's report: versioned JSON, and the error table printed from it. The table is always printed
// from the JSON, so that a kept report shows exactly what a fresh one does.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/reports/run.h"

namespace attnscope {

inline constexpr int kReportVersion = 2;

// key: what the run depends on (binary, scenario, options); a kept report with the same key is the
// report of the same run.
nlohmann::json make_report(const Scenario& scenario, const RunOptions& options,
                           const RunResult& result, const std::string& key);

// "scenario", "model" and "machine" parts, also used on their own.
nlohmann::json describe_model(const ModelConfig& config);
nlohmann::json describe_machine();

// One tensor that was read from a checkpoint.
nlohmann::json use_json(const TensorUse& use);

// The error table, drift, near ties, distributions and summary. colour: ANSI.
std::string format_report(const nlohmann::json& report, bool colour);

// AS_MISMATCH when the report's summary says wrong, failed or diverged, else the code of the run's
// error.
as_status report_status(const nlohmann::json& report);

// Hash of everything the run depends on, 16 hex digits.
std::string run_key(const Scenario& scenario, const RunOptions& options);

}  // namespace attnscope
