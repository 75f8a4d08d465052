// What the error panel says: per op how much error it made itself, how much it was handed and how
// much the formats cost; the worst element and the bytes it lives in.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/views/budget.h"
#include "app/views/selection.h"
#include "engine/session/snapshot.h"

namespace attnscope {

enum class ErrorFigure { kMaxAbs, kMaxRel, kCosine };
inline constexpr int kErrorFigures = 3;
inline constexpr std::array<const char*, kErrorFigures> kErrorFigureNames = {"max abs", "max rel",
                                                                             "cosine"};
double figure(const ErrorFigures& figures, ErrorFigure which);

// introduced, inherited, quantisation
enum class ErrorKind { kIntroduced, kInherited, kQuantisation };
inline constexpr int kErrorKinds = 3;
const char* error_kind_name(ErrorKind kind);
const char* error_kind_help(ErrorKind kind);  // what it means, a sentence or two
extern const char* const kBudgetHelp;

// The worst of an op's taps.
struct OpError {
  Place place;  // of the worst tap
  Verdict worst = Verdict::kNotCompared;
  Budget budget;    // the largest
  std::string tap;  // that used most
  std::int64_t taps = 0;
  // by kind and figure; absent when no tap has it
  std::array<std::array<std::optional<double>, kErrorFigures>, kErrorKinds> errors;
};

// One row per op of the results, in their order. layer: only that one's (kAllLayers: all).
inline constexpr int kAllLayers = -1000;
std::vector<OpError> op_errors(const std::vector<TapResult>& results, int layer);

// The first wrong result, of a step or of all steps known; nullptr when there is none.
const TapResult* first_wrong(std::span<const TapResult> results);
const TapResult* first_wrong(const Snapshot& snapshot);

// One row per op over all steps known; follows new pictures without starting again.
class RunErrors {
 public:
  void update(const Snapshot& snapshot);
  const std::vector<OpError>& rows() const { return rows_; }
  std::int64_t steps() const { return static_cast<std::int64_t>(seen_.size()); }

 private:
  std::vector<std::shared_ptr<const StepSummary>> seen_;  // complete ones, in rows_
  std::vector<OpError> complete_, rows_;
};

// "token 2103, head 5, dim 17" of a result's worst element; the T axis holds token rows.
std::string worst_text(const StepTrace& step, const TapResult& result);
// Both values of the worst element: "12 where ref.sim has 14", "entry 33 is missing".
std::string worst_words(const TapResult& result);
// Of a step that is kept the worst element that can be shown (worst_element.h).
// "indices is wrong at ..: 12 where ref.sim has 14, 3.4 times the tolerance" and the like.
std::string result_sentence(const StepTrace* step, const TapResult& result);
// The panel's sentence. op may be null (its trace is not kept).
std::string error_sentence(const StepTrace* step, const StepSummary& summary, const OpTrace* op,
                           const Place& cursor);
// Verdict of the same.
Verdict error_verdict(const StepSummary& summary, const OpTrace* op);

// The selection that names the worst element of a result that can be shown (worst_element.h): tap,
// element, its token, head and dim.
Selection worst_selection(const StepTrace& step, const OpTrace& op, const TapResult& result,
                          Selection selection);

// Where a result's worst element lies in the cache rows that its op wrote.
struct CachedElement {
  const RowsCopy* rows = nullptr;
  std::int64_t row = -1;  // of `rows`
  std::int64_t token_row = -1;
  std::int64_t dim = -1;
  std::int64_t slot = -1;
};
std::optional<CachedElement> cached_element(const OpTrace& op, const TapResult& result);

}  // namespace attnscope
