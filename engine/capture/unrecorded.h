// What two captures say of tensors that at least one of them did not keep: by checksums, which
// every level has.
#pragma once

#include <memory>
#include <string>

#include "engine/capture/capture_diff.h"
#include "engine/capture/row_match.h"

namespace attnscope {

class Unrecorded {
 public:
  Unrecorded(const Capture& a, const Capture& b) : a_{a, {}}, b_{b, {}} {}

  // Inputs of an op without values in one of the two: equal, unknown, or different.
  DiffInputs inputs(const RowMatch& match, const OpTrace& x, const OpTrace& y);
  // Outputs of an op that `diff` does not have: those that could be compared go into it, and of
  // those that could not, it is said why.
  void outputs(const RowMatch& match, const OpTrace& x, const OpTrace& y, OpDiff& diff);
  // Whether neither holds anything that it put out, not even a checksum.
  bool no_outputs(const OpTrace& x, const OpTrace& y);
  // Cache rows that it wrote.
  DiffInputs rows(const RowMatch& match, const OpTrace& x, const OpTrace& y,
                  const std::string& tap);

 private:
  struct Side {
    const Capture& capture;
    std::shared_ptr<const TraceEntry> entry;  // of the step that was asked for last
    const OpEntry* find(const Place& place);
  };
  Side a_, b_;
};

}  // namespace attnscope
