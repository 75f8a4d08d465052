// attnscope bench ..: what is measured by the program itself.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "kernels/params/result.h"

namespace attnscope {

// Subcommand of `app`; the one that is called stores what to do in `action`.
void add_bench_command(CLI::App& app, std::function<Result<as_status>()>& action);

}  // namespace attnscope
