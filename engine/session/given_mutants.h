// Planted bugs of what ops are given and no op puts out: lanes mutant:NAME of the op schedule. The
// op itself is sound; the session spoils what it does between two ops. given_checks.h finds them.
#pragma once

#include <string_view>
#include <vector>

#include "engine/metadata/step_metadata.h"
#include "engine/session/op_params.h"
#include "kernels/params/lane.h"

namespace attnscope {

struct GivenMutant {
  const char* name;  // of the lane
  const char* description;
  as_op_id shows;                                   // the op that is given what is wrong
  void (*metadata)(StepMetadata& step) = nullptr;   // once the step's tokens are planned
  void (*hidden)(const as_tensor& h) = nullptr;     // rows of the embedding, [T,hidden]
  void (*table)(const as_tensor& table) = nullptr;  // a copy of a rotary table
  void (*after)(const OpParams& params) = nullptr;  // what an op has just read or written
};

const std::vector<GivenMutant>& given_mutants();
// By the lane of schedule; nullptr when it is none of them.
const GivenMutant* given_mutant(std::string_view lane);
// All as lanes, for a registry.
const std::vector<as_lane>& given_mutant_lanes();

}  // namespace attnscope
