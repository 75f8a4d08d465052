// Why a call came out wrong, in words: what its wrong elements have in common, and which well-known
// mistakes give the same output.
//
//   auto why = explain_case(kept, ref_sim, mistakes, options);
//   for (const std::string& line : why->lines()) say(line);
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/explain/error_pattern.h"
#include "engine/explain/hypotheses.h"

namespace attnscope {

struct ExplainedTap {
  std::string tap;
  std::vector<ErrorFinding> findings;  // empty: of codes of a wrong row
};

struct Explanation {
  std::string op;
  std::vector<ExplainedTap> taps;  // the wrong ones
  Hypotheses hypotheses;
  // Of the lane that wrote the outputs, called again on the same inputs; empty = they are the same.
  std::string unsteady;
  bool reads_rows = false;  // of a cache; a case has those alone that the call should read

  bool wrong() const { return hypotheses.wrong > 0; }
  // A line for each finding, then those of causes.
  std::vector<std::string> lines() const;
  // What unsteady says and a line for each of the first three hypotheses, or that there is none;
  // empty: nothing is wrong.
  std::vector<std::string> causes() const;
};

// What is to be said of a lane whose outputs are beyond their tolerance apart when it is called
// twice, or are not those that the case holds. A lane that cannot be called again: nothing.
std::string unsteady_text(const OpCase& kept, const CaseLane& lane, const CaseRunOptions& options);

inline constexpr std::size_t kShownHypotheses = 3;

// kept: with the outputs as observed. sim: ref.sim, which says what is right. before, seconds: as
// try_mistakes has them.
Result<Explanation> explain_case(const OpCase& kept, const CaseLane& sim,
                                 std::span<const Mistake> mistakes, const TablesBefore& before,
                                 const CaseRunOptions& options, double seconds = kInfinity);

}  // namespace attnscope
