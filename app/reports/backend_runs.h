// One model, every backend: a scenario of dense attention computed once for each attention backend
// of vLLM that takes all of its layers and whose work lane cpu does: with that backend's layout of
// pages, its size of blocks and its form of a step's metadata, which paged_attention reads in the
// place of the session's own tables; with FlexAttention causality is a mask function. What comes
// out is held against ref.sim, and against what the first backend gave.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/reports/study_progress.h"
#include "engine/backend/attention_backend.h"
#include "engine/backend/registry.h"
#include "engine/config/scenario.h"
#include "engine/trace/tap_result.h"

namespace attnscope {

struct BackendRun {
  std::string name;      // "FLASHINFER"
  std::string version;   // "native"; empty = it has none
  std::string platform;  // that it was asked for: "sm_90", "cpu"
  std::string refused;   // why it did not run; empty = it did, and what follows is of it
  std::string layout;    // "NHD" or "HND"
  int block_size = 0;    // tokens
  MetadataForm metadata = MetadataForm::kBlockTables;
  std::string mask;                         // the function in the place of causality; empty = none
  std::int64_t calls = 0;                   // of paged_attention
  std::int64_t by_form = 0;                 // of them, that read the backend's metadata
  std::int64_t values = 0;                  // of attention's outputs
  double error = 0;                         // largest |difference| of them from ref.sim's
  double of_tolerance = 0;                  // the largest share of what is allowed
  Verdict verdict = Verdict::kNotCompared;  // the worst of any tap of the run
  std::int64_t compared = 0;                // values with those of the first backend that ran
  std::int64_t differing = 0;               // of them, that are others
  double apart = 0;                         // largest |difference| from it
  std::int64_t tokens = 0;                  // sampled
  std::int64_t changed = 0;                 // of them, that are others than the first one's
};

struct BackendRuns {
  std::string model, scenario;
  std::vector<BackendRun> runs;  // in the order in which they are tried, processors last
};

struct BackendRunsOptions {
  std::string gpu = "sm_90";  // as BackendsAsk::gpu; backends for processors are asked besides
  int threads = 0;            // 0 = all
  std::vector<std::string> lanes = {"cpu"};  // as SessionOptions::lanes, on the host
};

// Whether the model is one that backends are chosen for by rules, and whose layers keep rows.
Result<void> fits_backend_runs(const ModelConfig& config);

// AS_BAD_INPUT where the model is no such one; an error where a run fails.
Result<BackendRuns> run_backends(const Scenario& scenario, const LaneRegistry& lanes,
                                 const BackendRunsOptions& options,
                                 StudyProgress* progress = nullptr);

Verdict worst_of(const BackendRuns& runs);      // of those that ran
std::string describe(const BackendRuns& runs);  // a sentence or two
std::string backend_runs_text(const BackendRuns& runs);
nlohmann::json backend_runs_json(const BackendRuns& runs);

}  // namespace attnscope
