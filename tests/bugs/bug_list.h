// The planted bugs of a folder, as its patches describe themselves. Before the diff stands
//
//   Name: key_kept_after_pop                    the file's name, and the one that chosen.h knows
//   Bug: A block that is handed out keeps its key.
//   Workloads: g1 g2                            small ones of the block manager that end otherwise
//   Invariants: I5                              that trip in them; none: only what they end with
//   Decisions: keys                             that are the first to differ from the plain model's
//
// and an empty line.
#pragma once

#include <string>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

struct Bug {
  std::string name;
  std::string sentence;
  std::vector<std::string> workloads;
  std::vector<std::string> invariants;
  std::vector<std::string> decisions;
};

// In the order of their names. An error: a patch that leaves a line out, has another one, or whose
// code asks for another bug than its own.
Result<std::vector<Bug>> read_bugs(const std::string& folder);

}  // namespace attnscope
