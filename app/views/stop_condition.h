// What a run stops at: a condition on what one step did, as text. It holds of a step that has just
// run, of one on the way back and of one of a capture alike.
//
//   wrong of sparse_attention.o       a verdict: wrong, near_tie, quantisation, rounding
//   budget > 0.5 of 3/wo_b            a figure of compared taps, here in layer 3: budget, max_abs,
//                                     max_rel, max_ulp, cosine, differing, inherited, mass_moved
//   max > 40 of q_b_proj.y            a figure of values: min, max, mean, l2, nans, infinities
//   nan of attn_norm                  nans > 0
//   margin < 0.001                    of a selection: lowest selected score less best left out
//   evict block 211                   what happened to blocks and requests: admit, finish, abort,
//   preempt request 2                 preempt, hit, allocate, touch, free, evict, drop,
//                                     swap_out, swap_in
//   null_read                         attention read a row of the null block
//
// Of which op is open where it is not said. Values, margins and null_read need the step's trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/cache/cache_event.h"
#include "engine/session/snapshot.h"

namespace attnscope {

// Where a condition holds.
struct StopHit {
  Place place;
  std::string tap;                    // of the op; empty: none in particular
  const TapResult* result = nullptr;  // of the summary, where one is meant
  std::int32_t block = -1, request = -1;
  std::string why;  // "sparse_attention.o of layer 3 used 0.71 of its tolerance"
};

class StopCondition {
 public:
  // AS_USAGE where the text is none: what is wrong with it, and what is allowed.
  static Result<StopCondition> parse(std::string_view text);

  const std::string& text() const { return text_; }
  bool needs_trace() const { return kind_ >= Kind::kValue; }
  // The first place of the step where it holds. trace: null where it is not kept.
  std::optional<StopHit> find(const SessionInfo& info, const StepSummary& step,
                              const StepTrace* trace) const;

 private:
  enum class Kind { kVerdict, kFigure, kEvent, kValue, kMargin, kNullRead };
  struct Words;
  Result<void> read_bound(Words& words);
  Result<void> read_of(Words& words);
  Result<void> read_event(Words& words);
  bool is_of(int layer, as_op_id op) const {
    return (op_ < 0 || op_ == op) && (layer_ < -1 || layer_ == layer);
  }
  bool beyond(double value) const { return above_ ? value > bound_ : value < bound_; }
  std::optional<StopHit> find_result(const StepSummary& step) const;
  std::optional<StopHit> find_event(const StepSummary& step) const;
  std::optional<StopHit> find_value(const OpTrace& op) const;
  std::optional<StopHit> find_margin(const SessionInfo& info, const StepTrace& step,
                                     const OpTrace& op) const;
  std::optional<StopHit> find_null_read(const SessionInfo& info, const OpTrace& op) const;

  std::string text_;
  Kind kind_ = Kind::kVerdict;
  Verdict verdict_ = Verdict::kWrong;
  int figure_ = 0;  // of results or of values
  CacheEventKind event_ = CacheEventKind::kAllocate;
  bool above_ = true;
  double bound_ = 0;
  std::int64_t block_ = -1, request_ = -1;
  int layer_ = -2;  // published; -1 = outside the layers, -2 = any
  int op_ = -1;     // any
  std::string tap_;
};

// All words that may begin a condition, for messages and completion.
std::string stop_words();

}  // namespace attnscope
