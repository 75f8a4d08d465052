// Well-known mistakes tried on a call that came out wrong: those whose output is the observed one
// are possible causes. A mistake that gives the same output need not be the one that was made.
#pragma once

#include <cstdint>
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

// observed: outputs as the judged lane wrote them; right: ref.sim. Mistakes that cannot run the
// call are passed over; none is begun after `seconds`.
Result<Hypotheses> try_mistakes(const OpCase& observed, const CaseRun& right,
                                std::span<const Mistake> mistakes, const CaseRunOptions& options,
                                double seconds = kInfinity);

}  // namespace attnscope
