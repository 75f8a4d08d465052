// The planted bugs of a folder, as its patches describe themselves. Before the diff stands
//
//   Name: key_kept_after_pop                    the file's name, and the one that chosen.h knows
//   Bug: A block that is handed out keeps its key.
//   Run: attnscope run early                    commands that meet it; table.sh runs them
//   Exit: 1                                     and what they end with
//   Says: wrong .*block_hash                    and a regular expression of a line they print
//
// and an empty line. A bug of the block manager or the scheduler, which small workloads meet
// without a model, says three things more:
//
//   Workloads: g1 g2                            that end otherwise
//   Invariants: I5                              that trip in them; none: only what they end with
//   Decisions: keys                             that are the first to differ from the plain model's
#pragma once

#include <string>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

struct Bug {
  std::string name;
  std::string sentence;
  std::string run, says;
  int exit = 0;
  // Of the manager alone.
  std::vector<std::string> workloads;
  std::vector<std::string> invariants;
  std::vector<std::string> decisions;
};

enum class BugsOf { kManager, kProgram };

// In the order of their names. An error: a patch that leaves a line out, has another one, or whose
// code asks for another bug than its own.
Result<std::vector<Bug>> read_bugs(const std::string& folder, BugsOf part);

}  // namespace attnscope
