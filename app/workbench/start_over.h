// Running what is shown from its beginning: the scenario of a session, or of a capture on the lanes
// that it was recorded on.
#pragma once

#include "app/workbench/workbench.h"

namespace attnscope {

// AS_NO_ENVIRONMENT names a lane of the capture that this build has not, and those that it has.
Result<void> start_over(Workbench& bench);

}  // namespace attnscope
