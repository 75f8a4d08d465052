// The other ranks of a tensor-parallel session, and the sum over all of them.
//
// Ranks differ in heads and output groups alone, and peers keep nothing between layers but rows:
// where a layer's output is due, the ops that have heads run once more for each of them, on their
// slices of the weights. Of a cache that is the same on every rank, byte for byte, the own rank's
// serves its peers, which have nothing to insert. What is dealt out by head each peer has as caches
// of its own, in the same blocks (with_peers), so that going back and other lanes need no further
// care.
//
// The sum stands for an all-reduce: parts as bf16 in the order of ranks, added in fp32, rounded to
// bf16 once. For references in float64; ref.sim rounds to bf16, ref.exact does not.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/session/step/layer_ops.h"

namespace attnscope {

struct SessionParts;

class TensorParallelSum {
 public:
  // Of the engine or of a free-running reference, as its frame.
  TensorParallelSum(const SessionParts& parts, Frame::Kind kind) : parts_(parts), frame_(kind) {}

  struct Runner {
    // Runs one op of a peer.
    std::function<Result<void>(int layer, int rank, const OpParams&)> op;
    // Before the host reads a tensor; and once it has written one.
    std::function<Result<void>(const as_tensor&)> fetch;
    std::function<void(const as_tensor&)> wrote;
  };
  // own's sum from its part and those of its peers, after own's ops of the layer up to that part.
  Result<void> sum(int layer, const OpContext& context, Frame& own, const CacheSource& source,
                   const Runner& runner);

 private:
  Result<void> run(int layer, int rank, const OpContext& context, const Frame& own,
                   const CacheSource& source, const Runner& runner);

  const SessionParts& parts_;
  Frame frame_;                         // of one peer after the other
  std::vector<std::int64_t> no_slots_;  // by token
  std::vector<float> sum_;              // [T,hidden], of the engine
  std::vector<double> wide_sum_;        // likewise, of a reference
};

}  // namespace attnscope
