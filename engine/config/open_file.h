// Opening a file for reading.
#pragma once

#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// A descriptor, the caller's to close. AS_BAD_INPUT when missing, unreadable or no plain file: a
// named pipe without a writer would be waited for without end. What the user's shell names, in
// /dev or /proc (/dev/stdin, /dev/fd/63), may be a pipe.
Result<int> open_to_read(const std::string& path);

}  // namespace attnscope
