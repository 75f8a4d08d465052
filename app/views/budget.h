// How much of its tolerance a comparison used, in words that are the same everywhere. One step of
// the tap's own dtype is said as that: it is the least by which two roundings can differ, and would
// be a hundred percent of a tolerance of one step.
#pragma once

#include <string>

#include "engine/trace/tap_result.h"

namespace attnscope {

struct Budget {
  double used = 0;       // worst element / bound; infinite where nothing but equal bits passes
  bool one_ulp = false;  // no element is further away than one step of its dtype
};

Budget budget_of(const TapResult& result);
// "31 % of the tolerance", "1 ulp", "3.4 times the tolerance", "it must be exact"
std::string budget_words(const Budget& budget);
std::string budget_short(const Budget& budget);  // "31 %", "1 ulp", "3.4x", "exact"

}  // namespace attnscope
