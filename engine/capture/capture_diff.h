// Compares two captures: what every op computed for the same token of the same request, whichever
// step, batch and block it fell into. Slots are compared by the logical row that they stand for.
//
// Verdict of an op (worst of its taps and of the cache rows it wrote):
//   equal       same bits
//   within      beyond no tolerance; other entries of the same scores (near-ties) count as that,
//               and what is right beside the reference on both sides from the same inputs
//   origin      an output beyond its tolerance that the inputs do not explain: they have the same
//               bits, or one side is not what the reference makes of that side's own inputs
//   inherited   an output beyond its tolerance, and an input differs already, be it by rounding or
//               a near-tie; where both sides could be judged, each is right by itself
//   unknown     not recorded in one of the two
//
//   auto diff = diff_captures(*a, *b, tolerances);
//   if (diff->first) report(diff->first->text);
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/capture/capture.h"
#include "engine/capture/own_output.h"
#include "engine/trace/tolerances.h"

namespace attnscope {

enum class DiffVerdict { kEqual, kWithin, kOrigin, kInherited, kUnknown };
inline constexpr int kDiffVerdicts = 5;
const char* diff_verdict_name(DiffVerdict verdict);

struct TapDiff {
  std::string tap;
  bool output = false;
  bool equal = false;          // same bits, or slots of the same logical rows
  bool within = false;         // equal, or within the tolerance of an output
  bool near_tie = false;       // other entries, of the same scores within tolerance
  std::int64_t rows = 0;       // tokens compared
  std::int64_t differing = 0;  // elements that are not bit equal
  double max_abs = 0, budget_used = 0;
  std::string evidence;  // the worst element, with its token and both values
};

// Of all that an op reads, the rows of caches included: the furthest apart.
enum class DiffInputs { kEqual, kWithin, kUnknown, kBeyond };
const char* diff_inputs_name(DiffInputs inputs);  // "equal", "within", "unknown", "beyond"

struct OpDiff {
  Place a, b;  // where it ran in each
  std::string lane_a, lane_b;
  DiffVerdict verdict = DiffVerdict::kUnknown;
  DiffInputs inputs = DiffInputs::kEqual;
  bool judged = false;        // of an output beyond its tolerance: both sides beside the reference
  std::string why;            // then: what explains it, or whose fault it is
  std::vector<TapDiff> taps;  // that were recorded in both
};

// Something that is not a tensor: a request, a block table, an event, a scheduling decision.
struct StateDiff {
  std::int64_t step = 0;  // of the first capture
  std::string what;       // "events", "block tables", "schedule", "requests", "steps"
  std::string text;
};

struct FirstDivergence {
  OpDiff op;
  std::string text;  // one sentence with the evidence
};

// Where a capture computed a token.
struct TokenPlace {
  std::int64_t step = 0;
  std::int32_t row = 0;  // token row of the step
  std::int32_t token = -1;
  bool draft = false;  // verified behind another row of its request
};

struct CaptureDiff {
  std::int64_t steps = 0;           // of the first that have tokens in the second
  std::set<std::int64_t> compared;  // which
  std::int64_t tokens = 0;          // (request, position) pairs in both
  std::array<std::int64_t, kDiffVerdicts> counts{};
  std::vector<OpDiff> ops;  // all but the equal ones, in causal order
  std::vector<StateDiff> states;
  std::optional<FirstDivergence> first;
  std::vector<std::int32_t> requests;  // of the second, by those of the first; -1 = none
  // Where the second computed (its request, position) last.
  std::map<std::pair<std::int32_t, std::int64_t>, TokenPlace> where;

  bool same() const {
    return counts[static_cast<std::size_t>(DiffVerdict::kOrigin)] == 0 &&
           counts[static_cast<std::size_t>(DiffVerdict::kInherited)] == 0;
  }
  // What differs beyond its tolerance is inherited, and both sides are right by themselves.
  bool blameless() const {
    const auto right = [](const OpDiff& op) {
      return op.verdict == DiffVerdict::kInherited ? op.judged : op.verdict != DiffVerdict::kOrigin;
    };
    return !same() && std::all_of(ops.begin(), ops.end(), right);
  }
};

// AS_BAD_INPUT when the two are of models that cannot be laid beside each other, or nothing in them
// belongs to the same request; AS_USAGE when it was stopped. progress: takes the share done, false
// = stop; may be empty. judge: asked for ops that differ beyond tolerance and were not compared
// with a reference while they were recorded; may be empty.
Result<CaptureDiff> diff_captures(const Capture& a, const Capture& b, const Tolerances& tolerances,
                                  const std::function<bool(double)>& progress = {},
                                  const OwnJudge& judge = {});

}  // namespace attnscope
