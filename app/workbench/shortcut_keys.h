// The keys that shortcuts are made of.
#pragma once

#include <string>
#include <vector>

namespace attnscope {

// Canonical names in the order of a keyboard's manual: letters, digits, F1-F24, arrows, the rest.
const std::vector<std::string>& shortcut_keys();

}  // namespace attnscope
