// What must hold between the state before and the state after a call to the block manager, one
// function each.
#pragma once

#include "engine/cache/invariants.h"
#include "engine/cache/kv_audit.h"

namespace attnscope {

struct KvTransition {
  const KvManager& kv;
  const KvCall& call;
  const KvSnapshot& before;
  const KvSnapshot& after;
  std::int64_t predicted = 0;  // blocks that an allocation was to take from the queue
};

Finding check_length(const KvTransition& t);      // I6: tables reach as far as was asked
Finding check_commits(const KvTransition& t);     // I9: committed entries only grow, to the limit
Finding check_hit(const KvTransition& t);         // I10: a lookup's blocks are what was asked for
Finding check_arithmetic(const KvTransition& t);  // I11: free blocks before and after add up
Finding check_prediction(const KvTransition& t);  // I12: what was needed is what was taken
Finding check_failure(const KvTransition& t);     // I13: a failed allocation leaves all as it was
Finding check_order(const KvTransition& t);       // I14: the queue moves by its rules alone

// All of the transition; every one that fails.
std::vector<Violation> check_transition(const KvTransition& t);

}  // namespace attnscope
