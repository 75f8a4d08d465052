// Loading a plugin's library into this process and looking at the lane it exports.
#pragma once

#include <string>

#include "kernels/params/lane.h"
#include "kernels/params/result.h"

namespace attnscope {

// The library stays loaded. AS_BAD_INPUT: no library, lacks the symbol, built for another version,
// a name that is no word, no op at all, or one of the ops that the engine carries out itself.
Result<as_lane> load_plugin_lane(const std::string& library);

}  // namespace attnscope
