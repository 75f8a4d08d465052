// Where the files are that come with the program: scenarios, workloads, tolerances, maps, themes.
#pragma once

#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// The assets folder: $ATTNSCOPE_ASSETS, else the one beside the sources the binary was built from.
Result<std::string> assets_folder();

}  // namespace attnscope
