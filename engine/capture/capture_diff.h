// Compares two captures: what every op computed for the same token of the same request, whichever
// step, batch and block it fell into. Slots are compared by the logical row that they stand for.
//
// Verdict of an op (worst of its taps and of the cache rows it wrote):
//   equal       same bits; of an op without outputs in either, of all that it read, by one lane
//   within      beyond no tolerance; other entries of the same scores (near-ties) count as that,
//               and what is right beside the reference on both sides from the same inputs
//   origin      an output beyond its tolerance that the inputs do not explain: they have the same
//               bits, or one side is not what the reference makes of that side's own inputs;
//               and an output that nobody kept, found wrong while it was recorded
//   inherited   an output beyond its tolerance, and an input differs already, be it by rounding or
//               a near-tie; where both sides could be judged, each is right by itself
//   differs     the checksums of an output differ, its values were not kept and nobody judged them:
//               by how much is not known, and no input explains it
//   unknown     not recorded in one of the two, or it stands for places of one run alone
//
// An output whose values were not kept is compared by its checksum; where that differs and an input
// does too, it is inherited. Captures that were set up otherwise (setup_diff.h) part at ops that
// are right by themselves: those are origins that say so.
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

enum class DiffVerdict { kEqual, kWithin, kOrigin, kInherited, kDiffers, kUnknown };
inline constexpr int kDiffVerdicts = 6;
const char* diff_verdict_name(DiffVerdict verdict);

struct TapDiff {
  std::string tap;
  bool output = false;
  bool equal = false;          // same bits, or slots of the same logical rows
  bool within = false;         // equal, or within the tolerance of an output
  bool near_tie = false;       // other entries, of the same scores within tolerance
  bool by_checksum = false;    // its values were not kept in both: how far apart is not known
  std::int64_t rows = 0;       // tokens compared
  std::int64_t differing = 0;  // elements that are not bit equal
  double max_abs = 0, budget_used = 0;
  std::string evidence;  // the worst element, with its token and both values
};

// Of all that an op reads, the rows of caches included: the furthest apart.
// kDiffers: by their checksums, how far apart is not known.
enum class DiffInputs { kEqual, kWithin, kUnknown, kDiffers, kBeyond };
const char* diff_inputs_name(DiffInputs inputs);  // "equal", "within", "unknown", "differs", ..

struct OpDiff {
  Place a, b;  // where it ran in each
  std::string lane_a, lane_b;
  DiffVerdict verdict = DiffVerdict::kUnknown;
  DiffInputs inputs = DiffInputs::kEqual;
  bool judged = false;        // of an output beyond its tolerance: both sides beside the reference
  bool setup = false;         // an origin that is right on both sides: they were set up otherwise
  bool open = false;          // an output could not be compared: why says what it lacks
  std::string why;            // then: what explains it, or whose fault it is
  std::vector<TapDiff> taps;  // that were recorded in both
};

// Something that is not a tensor: a request, a block table, an event, a scheduling decision.
struct StateDiff {
  std::int64_t step = 0;  // of the first capture
  std::string what;       // "setup", "events", "block tables", "schedule", "requests", "steps"
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

// How much of a capture was compared.
struct ComparedShare {
  std::int64_t tokens = 0, all_tokens = 0;  // computed in all steps; a token twice counts twice
  std::int64_t ops = 0, all_ops = 0;        // whose outputs were compared, of those it holds
};

struct CaptureDiff {
  std::int64_t steps = 0;           // of the first that have tokens in the second
  std::set<std::int64_t> compared;  // which
  std::int64_t tokens = 0;          // (request, position) pairs in both
  ComparedShare first_share, second_share;
  std::array<std::int64_t, kDiffVerdicts> counts{};
  std::int64_t placements = 0;  // of the unknown: ops that are compared by their tables
  std::vector<OpDiff> ops;      // all but the equal ones, in causal order
  std::vector<StateDiff> states;
  std::string setup;  // what changes the numbers of ops: they were set up otherwise; else empty
  std::optional<FirstDivergence> first;
  std::vector<std::int32_t> requests;  // of the second, by those of the first; -1 = none
  // Where the second computed (its request, position) last.
  std::map<std::pair<std::int32_t, std::int64_t>, TokenPlace> where;

  std::int64_t count(DiffVerdict verdict) const {
    return counts[static_cast<std::size_t>(verdict)];
  }
  // Nothing is known to differ beyond its tolerance.
  bool same() const {
    return count(DiffVerdict::kOrigin) == 0 && count(DiffVerdict::kInherited) == 0 &&
           count(DiffVerdict::kDiffers) == 0;
  }
  // Every op's outputs were compared.
  bool whole() const { return std::ranges::none_of(ops, &OpDiff::open); }
  // What differs beyond its tolerance is inherited or comes of the setup, both sides are right by
  // themselves, and no question is open.
  bool blameless() const {
    const auto right = [](const OpDiff& op) {
      if (op.open || op.verdict == DiffVerdict::kDiffers) return false;
      if (op.verdict == DiffVerdict::kOrigin) return op.setup;
      return op.verdict != DiffVerdict::kInherited || op.judged;
    };
    return !same() && std::ranges::all_of(ops, right);
  }
};

// AS_BAD_INPUT when the two are of models that cannot be laid beside each other, or nothing in them
// belongs to the same request; AS_USAGE when it was stopped. progress: takes the share done, false
// = stop; may be empty. judge: asked for ops that differ beyond tolerance and were not compared
// with a reference while they were recorded, of both captures at once; may be empty.
Result<CaptureDiff> diff_captures(const Capture& a, const Capture& b, const Tolerances& tolerances,
                                  const std::function<bool(double)>& progress = {},
                                  const OwnJudge& judge = {});

}  // namespace attnscope
