// What the app tells its user: a line of the log which, but for notes, also comes forward for a
// while.
#pragma once

#include <string>

namespace attnscope {

struct Message {
  enum class Kind { kNote, kInfo, kWarning, kError } kind = Kind::kInfo;
  std::string text;
  double seconds = 0;  // since the workbench was made
};

}  // namespace attnscope
