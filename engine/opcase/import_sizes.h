// Sizes of a dump's tensors that an op cannot take, all of them: the letters of the op table must
// have one size each, and some of them one that the op is written for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/opcase/case_op.h"

namespace attnscope {

// What an op takes of a letter: multiples of `step` from `least` to `most`.
struct AllowedSize {
  std::int32_t op;
  const char* letter;
  std::int64_t least, most, step;
};

// A sentence each, empty = none. Tensors that are absent are passed over.
std::vector<std::string> size_violations(const CaseOp& op, const void* params);

}  // namespace attnscope
