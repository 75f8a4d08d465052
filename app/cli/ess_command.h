// attnscope ess ..: what a pool of rows on the device does for rows that lie in host memory.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "kernels/params/result.h"

namespace attnscope {

// Subcommands of `app`; the one that is called stores what to do in `action`.
void add_ess_command(CLI::App& app, std::function<Result<as_status>()>& action);

}  // namespace attnscope
