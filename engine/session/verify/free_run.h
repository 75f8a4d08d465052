// One reference that runs free: on its own history, fed the engine's tokens. A part of the
// verifier.
#pragma once

#include "engine/session/step/tensor_parallel_sum.h"
#include "engine/session/verify/verifier.h"

namespace attnscope {

struct Verifier::FreeRun {
  FreeRun(const Lane* reference, const SessionParts& parts, const AddressSpace& space, bool exact)
      : lane(reference),
        frame(exact ? Frame::Kind::kExact : Frame::Kind::kSim),
        tensor_parallel(parts, frame.kind()),
        history(parts.layout, space, exact) {}

  const Lane* lane;
  Frame frame;
  TensorParallelSum tensor_parallel;
  History history;
  OpParams last;     // of the op just run
  bool ran = false;  // this op
};

}  // namespace attnscope
