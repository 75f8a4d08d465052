// Copies of the tensors and cache rows of the op that ran last, for its OpTrace.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/session/session.h"
#include "engine/session/step/step_trace.h"
#include "engine/session/trace_recorder.h"

namespace attnscope {

// Outputs copied so far in a step, by the address the engine has them at: an input that still holds
// the same bytes is shared instead of copied.
class OutputsOfStep {
 public:
  void clear() { by_address_.clear(); }
  void add(const Session& session, const std::shared_ptr<const OpTrace>& op);
  // Fills value and owner; false when there is nothing to share.
  bool share(const as_tensor& tensor, std::int64_t t_axis, const std::vector<std::int32_t>& kept,
             TapCopy& copy) const;
  // The same for a copy whose values are taken: they go where an output has the same bytes.
  void share_copy(const as_tensor& tensor, TapCopy& copy) const;
  // Statistics of the output that lay at this address, nullptr when they were not taken.
  const TapStats* stats(const as_tensor& tensor) const;

 private:
  struct Output {
    std::shared_ptr<const OpTrace> op;
    const TapCopy* tap = nullptr;
  };
  std::map<const void*, Output> by_address_;
};

// Bytes at the beginning of a row of `rows`, copied for a token, that hold values of the tap; what
// its mask leaves out lies behind them. mask: the tensor that the tap names.
std::int64_t bytes_with_values(const as_tap_info& tap, const as_tensor& mask, std::int64_t token,
                               const as_tensor& rows);
// What a tap's table says of a copy of it; no values yet.
TapCopy described_copy(const as_tap_info& tap);
// The rows of a written cache, of those tokens that have a slot; neither group nor reference.
RowsCopy written_rows(const OpParams& params, const as_tap_info& tap,
                      const std::vector<std::int32_t>& tokens);

// Fills taps and rows of `op`, whose place is known, from the params of the op that ran last. kept:
// token rows. scratch: bytes for every tap, overwritten.
void copy_taps(const Session& session, const std::vector<std::int32_t>& kept, const KeepsTap& keeps,
               const OutputsOfStep& outputs, std::vector<std::vector<std::uint8_t>>& scratch,
               OpTrace& op);

// Bytes one token row takes in the largest copies of a whole step, references included.
std::int64_t row_copy_bytes(const Session& session);

// All token rows of the step when there are at most `limit`, else the last ones of every scheduled
// request, `limit` split evenly.
std::vector<std::int32_t> rows_to_keep(const StepMetadata& step, std::int64_t limit);

}  // namespace attnscope
