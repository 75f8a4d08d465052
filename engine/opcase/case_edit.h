// Another case from one that is kept: the same call with other numbers or another input, and what a
// kernel puts out then.
//
//   "scale=0.05"           a number of the call
//   "sinks=mine.safetensors"        the tensor `sinks` of that file
//   "q=mine.safetensors:queries"    another tensor of it
//   "cache.rows=mine.safetensors"   rows of a cache, as the case's own file has them
#pragma once

#include <string>
#include <vector>

#include "engine/opcase/op_case.h"

namespace attnscope {

struct EditedCase {
  OpCase kept;                     // its outputs are still those of the case that it was
  std::vector<std::string> notes;  // numbers that were rounded
};

// AS_USAGE: no such number or input. AS_BAD_INPUT: a tensor of another shape, a value that its type
// has not, or a list that names rows which the case does not hold.
Result<EditedCase> edit_case(OpCase kept, const std::vector<std::string>& changes);

}  // namespace attnscope
