// The process in which a plugin's kernels run: loads the library, answers calls until the socket is
// closed. Descriptors and messages: protocol.h.
#pragma once

#include "engine/plugin/plugin_device.h"

namespace attnscope {

// Exit code of the process. The device is opened when there are ops for it.
int run_plugin_child(const char* library,
                     const OpenPluginDevice& open_device = open_cuda_plugin_device);

}  // namespace attnscope
