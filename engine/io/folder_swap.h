// Replacing one folder by another in a single move.
#pragma once

#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// Whether a capture may be written under this name: it is free, or holds a capture or an empty
// folder (a link to one: no) that nobody writes to, and the folder around it can be written.
// AS_BAD_INPUT says what is in the way.
Result<void> check_capture_target(const std::string& path);

// While fd, which is open for a capture's steps.jsonl, stays open, nobody replaces the capture: two
// recordings of one name would write into each other's files. File systems without locks hold
// nothing.
void hold_capture(int fd);

// `made` takes the name `path`; what was there before is removed. A reader finds the old one or the
// new one at any time, save for an instant where the file system cannot exchange two names. A
// capture that is held is not replaced.
Result<void> replace_folder(const std::string& made, const std::string& path);

}  // namespace attnscope
