// Well-known mistakes tried on a call that came out wrong: those whose output is the observed one
// are possible causes. A mistake that gives the same output need not be the one that was made.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/model/numbers.h"
#include "engine/opcase/case_run.h"

namespace attnscope {

// A lane that makes one mistake on purpose.
struct Mistake {
  CaseLane lane;
  std::string words;  // "The sliding window starts one token late, so the oldest token is lost."
};

struct Hypothesis {
  std::string lane;
  std::string words;
  double share = 0;   // of the wrong elements, the ones it gives less those it gives otherwise
  bool whole = true;  // every element of every output is as observed
};

struct Hypotheses {
  std::int64_t wrong = 0;          // elements of the call that are beyond their bounds
  std::int64_t tried = 0;          // mistakes
  std::int64_t left = 0;           // mistakes that there was no time for
  std::vector<Hypothesis> likely;  // that explain half of `wrong` at least, the best first
};

inline constexpr double kLeastShare = 0.5;

// Block tables of the step before, by the tap of the op that is given those of its own step.
using TablesBefore = std::map<std::string, StoredTensor>;

// Those of a call; as they are in this memory, which is the host's.
bool is_block_table(const as_tap_info& tap);

// observed: outputs as the judged lane wrote them; right: what ref.sim makes of the call. Mistakes
// that cannot run the call are passed over; none is begun after `seconds`. before: tried too, with
// ref.sim as the op; may be empty.
Result<Hypotheses> try_mistakes(const OpCase& observed, const CaseRun& right, const CaseLane& sim,
                                std::span<const Mistake> mistakes, const TablesBefore& before,
                                const CaseRunOptions& options, double seconds = kInfinity);

}  // namespace attnscope
