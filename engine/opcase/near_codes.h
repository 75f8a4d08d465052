// Codes of rows that nobody kept before quantisation: another engine's row may differ from the
// reference's by one rounding to bf16, and its codes then differ too without being wrong. Codes are
// right when they follow from a row whose every element is the reference's or a neighbour of it; or
// from the case's own row, where it has one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "engine/opcase/op_case.h"
#include "engine/opcase/reference_call.h"
#include "engine/trace/compare.h"

namespace attnscope {

// Whether a case is of an op that quantises a row which a case may hold, and has what follows from
// it.
bool quantises(const OpCase& kept);

class NearCodes {
 public:
  // sim: the reference's function of this op, which quantises.
  Result<void> make(const OpCase& kept, as_op_fn sim, const as_threads* threads);
  struct Found {
    std::int64_t unexplained = 0;  // elements that differ and follow from no such row
    std::int64_t zeros = 0;        // FP8 codes of 0 where the reference has -0: the same value
  };
  // value: an output, dense, bytes or f32; of a cache its rows by token.
  Found find(const as_tap_info& tap, const as_tensor& value, const TapMask& mask) const;

 private:
  struct Set {
    OpCase kept;
    std::unique_ptr<CaseCall> call;
    ReferenceCall reference;
    Result<void> run(as_op_fn sim, const as_threads* threads);
  };
  std::array<Set, 3> sets_;  // the row itself, every element a step up, every element a step down
};

}  // namespace attnscope
