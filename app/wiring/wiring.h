// Puts the layers together: all lanes of this build in one registry.
#pragma once

#include "engine/backend/registry.h"

namespace attnscope {

LaneRegistry all_lanes();

}  // namespace attnscope
