// A case as the references take it: rows of caches gathered, float outputs in float64.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "engine/opcase/op_case.h"
#include "engine/session/step/frame.h"
#include "engine/session/step/most_taps.h"
#include "engine/session/step/rows_as_read.h"

namespace attnscope {

class ReferenceCall {
 public:
  // call: what a kernel lane gets; its memory must stay. row: true = the rows before quantisation
  // that call holds are inputs, and only what follows from them is computed.
  Result<void> make(const CaseCall& call, bool row_given);
  const void* params() const { return params_.data(); }
  // Output of a tap; for caches the rows [T, bytes or width] by token.
  as_tensor output(const as_tap_info& tap) const;

 private:
  void make_listed(std::int32_t op, std::size_t offset, as_cache& cache, as_tensor& slots);

  std::vector<std::uint64_t> params_;
  std::array<Scratch, kMostTaps> outputs_;
  // By the offset of the tensor that names them.
  std::map<std::size_t, std::vector<std::int64_t>> slots_;
  RowsAsRead rows_;
  Scratch gathered_;
};

}  // namespace attnscope
