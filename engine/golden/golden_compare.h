// Received values against accepted ones, tap by tap, in causal order.
//
// Floats: every sample keeps the bound of its tap (the class of the tolerance file, or what the
// golden puts in its place), and so does every statistic: |mean(a) - mean(b)| and |rms(a) - rms(b)|
// of a range are at most the sum of the bounds at its rms where all elements keep theirs. Integers
// and bytes: same checksum, row by row, unless what they were computed from differs. Sets: as
// compare.h does, by the scores of the run. A request that took another token after a near tie is
// left out of later steps.
//
// On another lane than the accepted values, or at another SIMD level, roundings grow from op to op.
// There a value beyond its bound follows from its inputs where the run was judged and every op of
// it is right on its own.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/golden/golden_values.h"

namespace attnscope {

struct GoldenComparison {
  std::vector<GoldenFinding> findings;  // one a tap, and one a differing token
  std::array<std::int64_t, kGoldenVerdicts> counts{};
  std::vector<GoldenTolerance> loosened;  // that a tap of it used

  std::int64_t count(GoldenVerdict v) const { return counts[static_cast<std::size_t>(v)]; }
  bool passed() const;
  // The first failure, or null.
  const GoldenFinding* first() const;
  // One sentence: what differs first and how much of it, or that nothing does.
  std::string sentence() const;
};

// AS_BAD_INPUT for a tap whose class the tolerance file does not have.
Result<GoldenComparison> compare_golden(const GoldenSpec& spec, const GoldenValues& accepted,
                                        const GoldenValues& received, const Tolerances& tolerances);

// Whether right values may be beyond their bounds: sums had another order, on another lane or at
// another SIMD level. Values that do not say their level had the same.
bool rounds_otherwise(const GoldenValues& accepted, const GoldenValues& received);

// Program, lanes and machine of both sides where they differ; the commit always does.
struct GoldenChange {
  std::string what;  // "processor"
  std::string accepted, received;
};
std::vector<GoldenChange> origin_changes(const GoldenValues& accepted,
                                         const GoldenValues& received);

// "2 samples, mean and 3 ranges" apart: what moved, for people who decide.
struct GoldenDelta {
  std::string what;  // "mean", "element 317"
  double accepted = 0, received = 0;
};
// Statistics and the samples that differ most, worst first, at most `most` of them.
std::vector<GoldenDelta> golden_deltas(const GoldenTap& accepted, const GoldenTap& received,
                                       std::size_t most);

// One sentence over findings; `taps` of them in all.
std::string golden_sentence(const std::vector<GoldenFinding>& findings);

}  // namespace attnscope
