// The command line: attnscope run | ops | model describe | blocks | doctor. Exit codes are
// as_status values.
#pragma once

#include <string>
#include <vector>

namespace attnscope {

// argv[0] is the program. Writes to stdout and stderr; never throws.
int run_cli(const std::vector<std::string>& arguments);

}  // namespace attnscope
