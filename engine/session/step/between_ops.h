// What a lane brings besides ops: functions that the session calls on what it hands from one op to
// the next. Lanes of kernels bring none; planted bugs of what ops are given are made of them
// (engine/mutants). LaneRegistry::add takes them with the lane, and the lane of the op schedule is
// the one whose functions are called.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/metadata/step_metadata.h"
#include "engine/session/step/op_params.h"

namespace attnscope {

class Slab;
struct BetweenParts;  // between_parts.h
struct BetweenRanks;  // between_ranks.h
struct Weights;

// Each may be null. `rope` and `ran` are left out where a device computes: what it reads is there.
struct BetweenOps {
  void (*loaded)(Weights& weights) = nullptr;      // once they were read or made, for all ranks
  void (*planned)(StepMetadata& step) = nullptr;   // once the step's tokens are planned
  void (*embedded)(const as_tensor& h) = nullptr;  // rows of the embedding, [T,hidden]
  void (*followed)(StepMetadata& step) = nullptr;  // once the token behind each one is known
  void (*rope)(const as_tensor& table) = nullptr;  // a copy of a rotary table, for this step
  void (*ran)(const OpParams& params) = nullptr;   // what an op has just read and written
  void (*summed)(const as_tensor& y) = nullptr;    // a layer's output over all ranks, [T,hidden]
  // What requests go on with, by row of the step, and how many of their drafts come before it.
  void (*appending)(const StepMetadata& step, std::vector<std::int32_t>& sampled,
                    std::vector<std::int32_t>& accepted) = nullptr;
  void (*restored)(const Slab& slab) = nullptr;  // going back has brought a step's bytes
  const BetweenRanks* ranks = nullptr;           // where ranks share requests; null: nothing
  const BetweenParts* parts = nullptr;           // where attention runs in parts; null: nothing
};

}  // namespace attnscope
