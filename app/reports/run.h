// One headless run of a scenario: steps the session, collects results and distributions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "engine/explain/explain_case.h"
#include "engine/session/coverage.h"
#include "engine/session/session.h"
#include "engine/session/what_if/dump_invariants.h"
#include "engine/trace/distributions.h"
#include "engine/trace/recount.h"

namespace attnscope {

struct RunOptions {
  SessionOptions session;
  std::optional<std::int64_t> steps;         // scheduler iterations
  SessionObserver* observer = nullptr;       // sees every op of the run
  std::optional<std::int64_t> decode_steps;  // steps after every request has finished prefill
  std::function<bool()> stopped = {};        // asked between two ops; true ends the run there
  double explain_seconds = 0;  // for known mistakes to be tried on the first wrong call; 0 = none
};

struct RunResult {
  std::vector<StepRecord> steps;
  Distributions distributions;
  Summary summary;
  Recount recount;  // of the same results
  std::vector<Invariant> invariants;
  // Of block manager and scheduler: which were checked, in how many steps, what ended the run.
  Invariants guard = Invariants::kOff;
  std::int64_t guarded_steps = 0;
  std::optional<Violation> violation;
  DecisionCounts decisions{};  // of both, that were judged, by kind
  std::optional<WrongDecision> wrong_decision;
  std::vector<CoveredPath> coverage;
  Witnessed witnessed;
  std::string lanes;
  std::vector<std::string> idle_lanes;  // that were asked for and carried out no op
  bool cut_short = false;  // by --steps, --decode-steps or an interrupt: their ops may have come
  bool stopped = false;    // by RunOptions::stopped; what was done before it is here
  std::optional<Explanation> why;     // of the first wrong call, where it was asked for
  std::optional<Error> error;         // an op or a reference failed; everything before it is here
  std::optional<Error> device_error;  // the GPU failed; the CPU lane computed from there on
  ServingTotals serving;
  std::shared_ptr<const std::vector<TensorUse>> weights_read;  // null: synthetic weights
  std::int64_t decode_steps = 0;                               // decode-only steps among `steps`
  double engine_seconds = 0;                                   // inside ops
  double wall_seconds = 0;                                     // with references and comparison
  double hashing_seconds = 0;                                  // of that, weights and tables
  std::int64_t peak_bytes = 0;                                 // resident set of the process
};

// Progress of a run: tokens computed and expected, decode steps done and wanted.
struct RunProgress {
  std::int64_t step = 0;
  double share = 0;  // 0..1
  const char* op = "";
  int layer = -1;
};

Result<RunResult> run_scenario(const Scenario& scenario, const LaneRegistry& lanes,
                               const RunOptions& options,
                               const std::function<void(const RunProgress&)>& progress);

}  // namespace attnscope
