// Opening files to read, and temporary ones to write.
#pragma once

#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// A descriptor, the caller's to close. AS_BAD_INPUT when missing, unreadable or no plain file: a
// named pipe without a writer would be waited for without end. What the user's shell names, in
// /dev or /proc (/dev/stdin, /dev/fd/63), may be a pipe.
Result<int> open_to_read(const std::string& path);

// A new, empty file beside `path` that will be renamed to it; its name, PATH.PID.N.tmp, is put into
// `temporary`. What a killed program of the same process number left is gone round: in a container
// numbers begin anew. -1 and errno where it cannot be made.
int open_temporary(const std::string& path, std::string& temporary);

}  // namespace attnscope
