// What if, carried on: the scenario once more from some op with one thing changed, that op's
// outputs in the place of what it wrote, and everything after it as usual. How far the layers'
// outputs then are from the free-running references shows which change takes the error out of the
// run.
//
// Changed inputs (no sink, YaRN turned over ..) are changed for the free-running references too, so
// that the distance is that of the op's code. Everything else (other code, reference indices,
// unquantised rows) is the engine's alone: the references go on as they are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config/scenario.h"
#include "engine/session/session.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

struct WhatIfAfterOptions {
  std::vector<std::string> changes = {};  // by name; empty = all that apply
  std::vector<std::string> lanes = {};    // other lanes to try
  const Lane* fp32 = nullptr;             // a reference that sums in fp32; null = not tried
  bool once = false;                      // the op alone; else it and every later one of its kind
  std::int64_t steps = 0;                 // how many are run, the op's own included; 0 = all
};

// 1-cos of a layer's output, the worst of the layers from the op on.
struct Drift {
  std::int64_t step = 0;
  double from_sim = 0;
  std::optional<double> from_exact;  // of ops that read quantised rows
};

struct WhatIfAfter {
  std::string change, sentence;
  std::string error;        // why it could not be run; empty = it ran
  bool other_code = false;  // the inputs are as they were, who computes is not
  std::vector<Drift> steps;
  double from_sim() const;  // worst step
  std::optional<double> from_exact() const;
};

// The first is "as it ran". options: References are chosen here. AS_MISMATCH: the session did not
// come back to what it had been before a change.
Result<std::vector<WhatIfAfter>> what_if_after(const Scenario& scenario,
                                               const LaneRegistry& registry, SessionOptions session,
                                               const Place& place,
                                               const WhatIfAfterOptions& options);

// Whether some drift is no number: outputs of the engine or of a reference are NaN.
bool no_number(const std::vector<WhatIfAfter>& results);

// Which changes take the error away, in one sentence.
std::string what_if_after_sentence(const std::vector<WhatIfAfter>& results);

}  // namespace attnscope
