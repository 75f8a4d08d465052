// What running a model by every backend gave: a sentence, a table, JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/reports/backend_runs.h"
#include "app/text/format.h"
#include "engine/backend/attention_selector.h"

namespace attnscope {

Verdict worst_of(const BackendRuns& runs) {
  Verdict worst = Verdict::kNotCompared;
  for (const BackendRun& run : runs.runs) worst = worse(worst, run.verdict);
  return worst;
}

std::string describe(const BackendRuns& runs) {
  const auto ran =
      std::ranges::count_if(runs.runs, [](const auto& r) { return r.refused.empty(); });
  std::string text = fmt::format("{}: one model, {}; ", runs.model,
                                 plural(ran, "backend that takes it", "backends that take it"));
  if (ran == 0) return text + "nothing was computed.";
  std::int64_t differing = 0, changed = 0, compared = 0;
  for (const BackendRun& run : runs.runs) {
    if (!run.refused.empty()) continue;
    differing += run.differing;
    compared += run.compared;
    changed += run.changed;
  }
  text += worst_of(runs) == Verdict::kWrong ? "something is wrong. " : "all are right. ";
  if (differing == 0) {
    return text + fmt::format("All {} compared values of attention's outputs are the same bytes.",
                              format_count(compared));
  }
  return text + fmt::format("{} of {} compared values of attention's outputs are other bytes, {}.",
                            format_count(differing), format_count(compared),
                            changed == 0 ? "no sampled token is another"
                                         : plural(changed, "sampled token is another",
                                                  "sampled tokens are others"));
}

std::string backend_runs_text(const BackendRuns& runs) {
  std::string out = describe(runs) + "\n\n";
  out += fmt::format("{:<26}{:<8}{:<6}{:>6}  {:<28}{:<17}{:>10}{:>11}{:>10}{:>8}\n", "backend",
                     "asked", "pages", "block", "metadata", "mask", "from ref", "tolerance",
                     "others", "tokens");
  for (const BackendRun& run : runs.runs) {
    if (!run.refused.empty()) {
      out += fmt::format("{:<26}{:<8}refused: {}\n", name_and_version(run.name, run.version),
                         run.platform, run.refused);
      continue;
    }
    out += fmt::format("{:<26}{:<8}{:<6}{:>6}  {:<28}{:<17}{:>10}{:>11}{:>10}{:>8}\n",
                       name_and_version(run.name, run.version), run.platform, run.layout,
                       run.block_size, metadata_form_name(run.metadata),
                       run.mask.empty() ? "causal" : run.mask, format_error(run.error),
                       format_share(run.of_tolerance), run.differing, run.changed);
  }
  return out +
         "\nfrom ref: largest difference of attention's outputs from ref.sim; tolerance: the "
         "largest share used\nothers: values that are not those of the first backend; tokens: "
         "sampled ones that are others\n";
}

nlohmann::json backend_runs_json(const BackendRuns& runs) {
  nlohmann::json rows = nlohmann::json::array();
  for (const BackendRun& run : runs.runs) {
    nlohmann::json row{{"backend", run.name}, {"version", run.version}, {"asked", run.platform}};
    if (!run.refused.empty()) {
      row["refused"] = run.refused;
      rows.push_back(std::move(row));
      continue;
    }
    row.update({{"layout", run.layout},
                {"block_size", run.block_size},
                {"metadata", metadata_form_name(run.metadata)},
                {"mask", run.mask},
                {"calls", run.calls},
                {"calls_by_form", run.by_form},
                {"values", run.values},
                {"error", run.error},
                {"of_tolerance", run.of_tolerance},
                {"verdict", verdict_name(run.verdict)},
                {"compared", run.compared},
                {"differing", run.differing},
                {"apart", run.apart},
                {"tokens", run.tokens},
                {"changed", run.changed}});
    rows.push_back(std::move(row));
  }
  return {{"format", "attnscope-backend-runs"},
          {"version", 1},
          {"model", runs.model},
          {"scenario", runs.scenario},
          {"sentence", describe(runs)},
          {"backends", rows}};
}

}  // namespace attnscope
