// A second look at an edited case: each number and input that was named holds what was given for
// it, and everything else that the op reads is as it was; rows that the changed call no longer
// reads may be gone. Files are read anew, one element at a time.
#pragma once

#include <string>
#include <vector>

#include "engine/opcase/op_case.h"

namespace attnscope {

// changes: as edit_case() took them. Names what is another, empty = nothing; AS_BAD_INPUT: a file
// of theirs cannot be read any more.
Result<std::string> edit_fault(const OpCase& before, const OpCase& after,
                               const std::vector<std::string>& changes);

}  // namespace attnscope
