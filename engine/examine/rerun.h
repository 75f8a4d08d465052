// Calls of cases, also of those that keep_case does not take.
#pragma once

#include "engine/opcase/case_run.h"

namespace attnscope {

// As rerun_case. Of copy_blocks the blocks that it does not name are kept as the memory of the call
// was filled; with `exchange` it is an error.
Result<OpCase> rerun_call(const OpCase& call, const CaseLane& lane, const CaseRunOptions& options);

}  // namespace attnscope
