// Loading a plugin's library into this process and looking at what it exports.
#pragma once

#include <array>
#include <string>

#include "kernels/params/lane.h"
#include "kernels/params/result.h"

namespace attnscope {

struct LoadedPlugin {
  as_lane lane{};
  std::array<bool, AS_OP_COUNT> on_device{};  // ops whose tensors lie on the GPU
};

// The library stays loaded. AS_BAD_INPUT: no library, lacks the symbol, built for another version,
// a name that is no word, no op at all, one of the ops that the engine carries out itself, or one
// on the GPU that it does not have.
Result<LoadedPlugin> load_plugin(const std::string& library);

}  // namespace attnscope
