// Where the rows of a request's blocks lie that its layers select from: on the device while it
// prefills, in host memory while it decodes. Of sessions with pools of rows.
#pragma once

#include <cstdint>
#include <string>

#include "engine/session/snapshot.h"

namespace attnscope {

// "device", "host"; empty where the group has no such rows, or all lie on the device.
std::string row_tier(const SessionInfo& info, const StepTrace& step, std::int32_t request,
                     int group);

}  // namespace attnscope
