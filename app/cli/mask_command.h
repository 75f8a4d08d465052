// attnscope mask ..: masks of attention as tiles.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "kernels/params/result.h"

namespace attnscope {

// Subcommands of `app`; the one that is called stores what to do in `action`.
void add_mask_command(CLI::App& app, std::function<Result<as_status>()>& action);

}  // namespace attnscope
