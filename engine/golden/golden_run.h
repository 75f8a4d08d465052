// Runs goldens: computes what a definition names, compares it with what was accepted, and keeps
// what differs beside it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/backend/registry.h"
#include "engine/golden/golden_compare.h"
#include "engine/golden/golden_folder.h"

namespace attnscope {

struct GoldenRunOptions {
  bool ci = false;                 // nothing is written
  std::vector<std::string> lanes;  // in place of each definition's; nothing is written then either
  int threads = 0;
  bool judged = false;  // ref.sim beside every op, on the op's own inputs
  std::string tolerance_file;
  int profiles = kProfilesVersion;  // of scenarios; run_golden() goes by the accepted values
  GoldenOrigin origin;              // of what is received
  std::function<bool(double share)> going;  // false = stop; may be empty
};

enum class GoldenState {
  kPassed,
  kFailed,   // a value is beyond its tolerance, or missing
  kNew,      // nothing was accepted yet
  kStale,    // the definition, the scenario or its prompts are others than when it was accepted
  kSkipped,  // this machine lacks the lane, the lane the op, or the run an op of the lane
  kBroken    // a file cannot be read, or the run failed
};
inline constexpr int kGoldenStates = 6;
const char* golden_state_name(GoldenState state);

struct GoldenOutcome {
  std::string name, about, lanes;
  GoldenState state = GoldenState::kBroken;
  std::string sentence;
  std::string wrote;  // the received file, where one was written
  double seconds = 0;
  GoldenComparison comparison;
  std::vector<GoldenTolerance> loosened;  // by the definition
  std::vector<GoldenChange> origin;       // what differs where its values were accepted
  std::optional<Error> error;
  // Both sides, for pictures; empty where there are none.
  GoldenValues accepted, received;
};

// What one definition computes.
Result<GoldenValues> compute_golden(const GoldenSpec& spec, const LaneRegistry& registry,
                                    const GoldenRunOptions& options);

// What keeps a definition from running, before anything runs: a scenario or case that cannot be
// read, a lane that nobody knows. A lane that this machine lacks is no such thing.
Result<void> check_golden(const GoldenSpec& spec, const LaneRegistry& registry);

// A golden keeps the meaning that profiles had when its values were accepted, as long as it passes
// so. What is received from one that does not is computed as profiles are now.
GoldenOutcome run_golden(GoldenFolder& folder, const std::string& name,
                         const LaneRegistry& registry, const GoldenRunOptions& options);

struct GoldenReport {
  std::string folder;
  std::vector<GoldenOutcome> outcomes;
  std::vector<GoldenOrphan> orphans;
  // A signal ended the run: its name, and the goldens that are therefore not among the outcomes.
  std::string interrupted = {};
  std::vector<std::string> not_run = {};

  std::int64_t count(GoldenState state) const;
  // AS_OK; AS_MISMATCH when a golden failed, is new or stale, or there are orphans; AS_BAD_INPUT
  // (or the run's own code) when one is broken; AS_NO_ENVIRONMENT when all that ran passed but some
  // could not run here.
  as_status status() const;
};

}  // namespace attnscope
