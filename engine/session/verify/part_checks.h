// Attention that runs over the rows of a pool while others come (step/row_overlap.h): each part
// held against ref.sim over its rows, the merge against ref.sim on the same parts.
//
// What is wrong becomes a result of the attention op: "o.resident", "lse.missed", "merge". What is
// right is not counted, as the op's own taps are: they are held against all rows.
#pragma once

#include <string>

#include "engine/session/step/row_overlap.h"
#include "engine/session/verify/verifier.h"

namespace attnscope {

class PartChecks : public PartWatch {
 public:
  PartChecks(const SessionParts& parts, Verifier& verifier) : parts_(parts), verifier_(verifier) {}

  // Before an op of the step, which its lane runs.
  void begin_op(const StepMetadata& step, const std::string& lane) {
    step_ = &step;
    lane_ = lane;
  }
  Result<void> attended(int layer, const OpParams& part, const char* name) override {
    return verifier_.part_of_op(layer, part, lane_, name);
  }
  Result<void> merged(int layer, const OpParams& whole, const OpParams& resident,
                      const OpParams& missed) override;

 private:
  const SessionParts& parts_;
  Verifier& verifier_;
  const StepMetadata* step_ = nullptr;
  std::string lane_;
  Scratch o_, lse_, memory_[5];
};

}  // namespace attnscope
