// Which planted bug is in, of those that tests/bugs/*.patch put into a copy of the sources. The
// build includes this header before each source that it compiles from there.
#pragma once

#include <string>
#include <string_view>

namespace attnscope {

// Its name; empty: none. Not to be changed while another thread runs what may hold bugs.
inline std::string chosen_bug;

inline bool bug_chosen(std::string_view name) { return chosen_bug == name; }

}  // namespace attnscope
