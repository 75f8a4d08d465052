// Planted bugs: lanes mutant:NAME that replace one op of the CPU lane with a wrong one, so that the
// tool can be shown to name the right op. Everything else in such a lane is the CPU lane's.
#pragma once

#include <vector>

#include "kernels/params/lane_table.h"

namespace attnscope::mutants {

// All mutants that any traffic reaches; ops they do not replace are NULL.
const std::vector<Lane>& lanes();

// One that only some traffic reaches.
struct RareMutant {
  Lane lane;
  as_op_id op;           // that it replaces
  const char* scenario;  // a name of assets/scenarios: there it shows
};
const std::vector<RareMutant>& rare();

// Of helper ops, which no step runs: a case of one shows it.
const std::vector<Lane>& helpers();

}  // namespace attnscope::mutants
