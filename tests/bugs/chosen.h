// Which planted bug is in, of those that tests/bugs/*.patch put into a copy of the sources. The
// build includes this header before each source that it compiles from there.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace attnscope {

// Its name; empty: none. At the start what the environment says in ATTNSCOPE_BUG. Not to be changed
// while another thread runs what may hold bugs.
inline std::string chosen_bug = [] {
  const char* named = std::getenv("ATTNSCOPE_BUG");
  return std::string(named == nullptr ? "" : named);
}();

inline bool bug_chosen(std::string_view name) { return chosen_bug == name; }

}  // namespace attnscope
