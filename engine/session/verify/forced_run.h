// Where references of one thread compute what they are fed of the engine's ops, and what they put
// out, until the thread's next op.
#pragma once

#include "engine/session/step/frame.h"
#include "engine/session/verify/forced_copy.h"

namespace attnscope {

struct ForcedRun {
  ForcedRun(const CacheLayout& layout, const Shadow& shadow)
      : sim(layout, shadow), exact(layout, shadow) {}

  ForcedCopy sim, exact;
  Scratch decoded;  // rows of a cache as values
};

}  // namespace attnscope
