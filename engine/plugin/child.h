// The process in which a plugin's kernels run: loads the library, answers calls until the socket is
// closed. Descriptors and messages: protocol.h.
#pragma once

namespace attnscope {

// Exit code of the process.
int run_plugin_child(const char* library);

}  // namespace attnscope
