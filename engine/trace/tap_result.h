// What is known about one tap after it was compared, and the summary over many.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/params/op_ids.h"

namespace attnscope {

// equal        same bits as ref.sim
// rounding     within tolerance of ref.sim (and of ref.exact, where it was asked)
// quantisation within tolerance of ref.sim; beyond it from ref.exact: the format's own error
// near_tie     selected sets differ, every swapped pair's scores within the score tolerance
// wrong        beyond tolerance
// not_compared no reference ran
enum class Verdict { kEqual, kRounding, kQuantisation, kNearTie, kWrong, kNotCompared };
inline constexpr int kVerdicts = 6;
const char* verdict_name(Verdict verdict);
// Whether a is more severe than b; what was not compared is less than anything else.
bool is_worse(Verdict a, Verdict b);
Verdict worse(Verdict a, Verdict b);

// Ends of tap names that stand for what an op was given instead of what it put out: lists of the
// step's metadata, a rotary table, a tensor that somebody wrote to in between.
inline constexpr const char* kMetadataTap = ".metadata";
inline constexpr const char* kTableTap = ".table";
inline constexpr const char* kChangedTap = ".changed";
// .. and of what happens around ops: weights and tables that changed while the session ran, or were
// read otherwise than the file has them; recorded rows that are fed to a layer; rows of a cache
// that somebody changed between two ops; the sum over ranks; tokens that a request got; bytes that
// going back brought.
inline constexpr const char* kWeightTap = ".weights";
inline constexpr const char* kLoadTap = ".loaded";
inline constexpr const char* kRecordedTap = ".recorded";
inline constexpr const char* kBetweenTap = ".between";
inline constexpr const char* kSumTap = ".sum";
inline constexpr const char* kRankTap = ".rank";  // and its number: of another rank than the seen
inline constexpr const char* kAppendTap = ".appended";
inline constexpr const char* kReplayTap = ".replay";

// Figures of one comparison.
struct ErrorFigures {
  double max_abs = 0;
  double max_rel = 0;          // |a - b| / (|b| + 1e-6)
  double cosine = 0;           // 1 - 2 sum(ab) / sum(a^2 + b^2)
  std::int64_t differing = 0;  // elements (or list members) that are not bit equal
  std::int64_t beyond = 0;     // elements beyond the tolerance; all others pass
  // Of |a - b| over all finite pairs, from above and by an eighth of an octave at most.
  double median = 0, p90 = 0, p99 = 0;
  double max_ulp = 0;  // bf16 and fp32 taps: steps of the tap's dtype between a and b
  double recall = 1;   // top-k taps: worst row's share of the reference's members
};

// Free-running selection: where the engine and ref.sim, each on its own history, chose differently.
struct SelectionDrift {
  std::int64_t tokens = 0;      // tokens with any difference
  std::int64_t entries = 0;     // swapped entries in all
  double margin = 0;            // widest score gap of a swap, ref.sim's scores
  double score_difference = 0;  // inherited difference of the scores of that token, largest
  double recall = 1;            // worst row's share of ref.sim's members
};

struct WorstElement {
  std::vector<std::int64_t> index;  // along the tap's axes
  double value = 0;
  double reference = 0;
};

struct TapResult {
  std::int64_t step = 0;
  int layer = -1;  // published layer number, -1 = outside the layers
  as_op_id op = AS_OP_SCHEDULE;
  std::string tap;
  std::string lane;
  std::vector<std::int64_t> shape;
  std::string dtype;
  std::int64_t elements = 0;                 // compared
  std::optional<ErrorFigures> introduced;    // forced: engine vs ref.sim on the engine's inputs
  std::optional<ErrorFigures> inherited;     // free-running: engine vs ref.sim on its own history
  std::optional<ErrorFigures> quantisation;  // ref.sim vs ref.exact
  std::optional<SelectionDrift> selection;   // top-k taps, free-running
  std::string tolerance;                     // class in the tolerance file
  double budget_used = 0;                    // worst / tolerance; above 1 = wrong
  Verdict verdict = Verdict::kNotCompared;
  std::optional<WorstElement> worst;
  // top-k taps with a swap: share of the attention that went to entries the reference did not
  // choose, largest over tokens and heads.
  std::optional<double> mass_moved;
  std::string note;  // evidence in one sentence, when there is something to say
};

// Of what is held exactly and does not hold: step 0, no layer, no lane.
TapResult wrong_result(as_op_id op, std::string tap, std::int64_t elements, std::int64_t beyond,
                       std::string note);

// Free-running drift of one layer: worst cosine-type difference of its output over the run.
struct LayerDrift {
  int layer = 0;
  double cosine = 0;
  std::int64_t step = 0;  // where it was worst
  // There, the selections of both histories had parted, by near ties alone (drift.h).
  bool past_near_ties = false;
  bool beyond = false;  // anywhere, of what it may be
};

// Who is to blame: an op with wrong outputs, or a cache whose rows are not those that were written.
// Wrong rows behind an op that is blamed already are its consequence and blame nobody else.
struct Blame {
  as_op_id op = AS_OP_SCHEDULE;
  bool cache = false;            // the rows that `op` reads, not the op
  TapResult first;               // causal order
  std::int64_t taps = 0;         // wrong taps of this op
  std::string sentence() const;  // where, what, the evidence
};
std::vector<Blame> blame(const std::vector<TapResult>& results);

// The tightest look at one bound: how much of it the run used.
struct BudgetUse {
  as_op_id op = AS_OP_SCHEDULE;
  std::string tap, lane, tolerance;
  double used = 0;  // worst element in units of its bound
  std::int64_t taps = 0;
  bool exact = false;  // the bound is equality
  // A bound that is more than 20 times what was needed.
  bool slack() const { return !exact && used * 20 < 1; }
};

struct Summary {
  std::int64_t taps = 0;
  std::array<std::int64_t, kVerdicts> counts{};
  std::optional<TapResult> first_wrong;
  std::vector<Blame> blamed;       // causal order
  std::vector<BudgetUse> budgets;  // by op and tap, causal order of their first appearance
  std::vector<TapResult> near_ties;
  std::vector<TapResult> selections;  // free-running selections that differ
  std::vector<LayerDrift> drift;
  double drift_limit = 0;
  bool diverged = false;  // a layer's drift is beyond what it may be
  bool stood_in = false;  // a lane failed, and another one carried out its op from there on

  std::int64_t count(Verdict v) const { return counts[static_cast<std::size_t>(v)]; }
  // "ok", "wrong", "failed" (stood_in), "diverged" or "not_compared".
  std::string verdict() const;
};

// Results in causal order.
Summary summarise(const std::vector<TapResult>& results, double drift_limit);

}  // namespace attnscope
