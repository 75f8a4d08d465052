// Where the program keeps what it remembers of its user.
#pragma once

#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// Folder of settings, layouts and kept checkpoints: $XDG_STATE_HOME/attnscope, else
// ~/.local/state/attnscope; created when it is not there. Errors name the folder.
Result<std::string> state_folder();

}  // namespace attnscope
