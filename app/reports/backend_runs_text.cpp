// What running a model by every backend gave: a sentence, a table, JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/reports/backend_runs.h"
#include "app/text/format.h"

namespace attnscope {
namespace {

std::string name_of_run(const BackendRun& run) {
  return run.version.empty() ? run.name : fmt::format("{} ({})", run.name, run.version);
}

}  // namespace

std::string describe(const BackendRuns& runs) {
  const auto ran =
      std::ranges::count_if(runs.runs, [](const auto& r) { return r.refused.empty(); });
  std::string text = fmt::format("{}: one model, {}; ", runs.model,
                                 plural(ran, "backend that takes it", "backends that take it"));
  if (ran == 0) return text + "nothing was computed.";
  std::int64_t differing = 0, changed = 0, compared = 0;
  Verdict worst = Verdict::kNotCompared;
  for (const BackendRun& run : runs.runs) {
    if (!run.refused.empty()) continue;
    differing += run.differing;
    compared += run.compared;
    changed += run.changed;
    worst = worse(worst, run.verdict);
  }
  text += worst == Verdict::kWrong ? "something is wrong. " : "all are right. ";
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
      out += fmt::format("{:<26}{:<8}refused: {}\n", name_of_run(run), run.platform, run.refused);
      continue;
    }
    out += fmt::format("{:<26}{:<8}{:<6}{:>6}  {:<28}{:<17}{:>10}{:>11}{:>10}{:>8}\n",
                       name_of_run(run), run.platform, run.layout, run.block_size,
                       metadata_form_name(run.metadata), run.mask.empty() ? "causal" : run.mask,
                       format_error(run.error), format_share(run.of_tolerance), run.differing,
                       run.changed);
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
    row["layout"] = run.layout;
    row["block_size"] = run.block_size;
    row["metadata"] = metadata_form_name(run.metadata);
    row["mask"] = run.mask;
    row["calls"] = run.calls;
    row["calls_by_form"] = run.by_form;
    row["values"] = run.values;
    row["error"] = run.error;
    row["of_tolerance"] = run.of_tolerance;
    row["verdict"] = verdict_name(run.verdict);
    row["compared"] = run.compared;
    row["differing"] = run.differing;
    row["apart"] = run.apart;
    row["tokens"] = run.tokens;
    row["changed"] = run.changed;
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
