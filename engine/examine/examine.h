// A kernel tried on purpose: every clause of its op's contract with calls that a run seldom makes.
//
//   auto findings = examine(AS_OP_RESIDUAL, lane, options);
//   for (const ClauseFinding& f : *findings) .. f.clause->text, f.verdict ..
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/examine/clause.h"
#include "engine/opcase/case_run.h"

namespace attnscope {

struct ExamineOptions {
  CaseLane lane;       // that is examined
  CaseRunOptions run;  // guard: the CPU lane, whose outputs are what is expected
  CaseLane reference;  // has the last word where the two differ; without a function it has none
  // Why no call may take gigabytes of address space; empty = it may.
  std::string not_far;
  // Fills outputs with this byte before a call; null where that cannot be chosen.
  std::function<void(std::uint8_t)> set_poison;
};

// Refused: the lane says that it cannot do what is asked.
enum class ClauseVerdict { kKept, kBroken, kRefused, kNotReached };
const char* clause_verdict_name(ClauseVerdict verdict);

struct ClauseFinding {
  const Clause* clause = nullptr;
  ClauseVerdict verdict = ClauseVerdict::kNotReached;
  int calls = 0;
  std::string note;                // what went wrong, or why no call reaches the clause
  std::optional<OpCase> smallest;  // that breaks it, with the outputs that are expected
};

// One finding a clause. An error: there is nothing to compare with.
Result<std::vector<ClauseFinding>> examine(as_op_id op, const ExamineOptions& options);

}  // namespace attnscope
