// Comparing one tap with a reference: element rule, cosine-type difference, NaN and infinity
// positions; lists of selected entries as sets.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/trace/tap_result.h"
#include "engine/trace/tolerances.h"
#include "kernels/params/lane.h"
#include "kernels/params/tensor.h"

namespace attnscope {

// Which elements of a tap hold values. Row = first axis.
struct TapMask {
  const std::int64_t* slots = nullptr;          // row valid iff slots[row] >= 0
  const std::int32_t* lens = nullptr;           // columns (last axis) < lens[row] are valid
  const std::vector<bool>* left_out = nullptr;  // rows that are not compared
};

struct Comparison {
  ErrorFigures figures;
  std::int64_t elements = 0;
  std::int64_t rows_beyond = 0;  // rows (first axis) with an element beyond the tolerance
  std::int64_t anomalies = 0;    // elements that are NaN or infinite on one side only
  double budget_used = 0;        // worst element or cosine difference in units of its bound
  bool within = true;            // budget_used <= 1 and anomalies at the same positions
  bool equal = true;             // every element is the reference rounded to the tap's dtype
  bool near_tie = false;         // top_k: sets differ within the score tolerance
  WorstElement worst;
  std::string note;
};

// value: the engine's tap, any dtype. reference: same shape, F64 or the same dtype. The result is
// the same for any number of threads; null = the calling one.
Comparison compare(const as_tensor& value, const as_tensor& reference, const TapMask& mask,
                   const Tolerance& tolerance, const as_threads* threads = nullptr);

// Selected entries [T,K] as sets. logits [T,N] are the scores the engine selected by; lens [T].
// Also checks the engine's own list: unique, in range, min(K, len) long, -1 only as a suffix.
Comparison compare_top_k(const as_tensor& indices, const as_tensor& reference,
                         const as_tensor& logits, const std::int32_t* lens,
                         const Tolerance& tolerance);

// Free-running selections [T,K] of the engine and ref.sim, with the scores each one selected by.
// The two follow from different scores, so a swap's margin is at most twice their difference.
SelectionDrift selection_drift(const as_tensor& indices, const as_tensor& logits,
                               const as_tensor& sim_indices, const as_tensor& sim_logits,
                               const std::int32_t* lens);

// Error against magnitude: differences of the elements whose reference lies in [2^e, 2^(e+1)).
struct MagnitudeBin {
  int exponent = 0;  // e; of a reference of 0 the smallest bin's
  std::int64_t elements = 0;
  double max_abs = 0, mean_abs = 0;
};
std::vector<MagnitudeBin> error_by_magnitude(const as_tensor& value, const as_tensor& reference,
                                             const TapMask& mask);

// |value - reference| in units of the loosest bound that applies, row_max being the largest
// magnitude of the reference's row: the element passes up to 1. Infinite where one alone is not
// finite.
double element_budget(double value, double reference, double row_max, const Tolerance& tolerance);

// Figures only, no rule: float taps.
ErrorFigures measure(const as_tensor& a, const as_tensor& b, const TapMask& mask,
                     const as_threads* threads = nullptr);

// Element of a tensor at flat row `row` (all axes but the last) as a double. U8, I32 and I64 too.
double element(const as_tensor& t, std::int64_t row, std::int64_t column);
// Extent of the last axis.
inline std::int64_t columns_of(const as_tensor& t) { return t.shape[t.rank - 1]; }

}  // namespace attnscope
