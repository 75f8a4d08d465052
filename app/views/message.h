// What the app tells its user: a line of the log and, for a while, of the status bar.
#pragma once

#include <string>

namespace attnscope {

struct Message {
  enum class Kind { kInfo, kWarning, kError } kind = Kind::kInfo;
  std::string text;
  double seconds = 0;  // since the workbench was made
};

}  // namespace attnscope
