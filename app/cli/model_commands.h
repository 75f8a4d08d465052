// The commands about models: describe, tensors, export; and tap-export.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "kernels/params/result.h"

namespace attnscope {

// Subcommands of `app`; the one that is called stores what to do in `action`.
void add_model_commands(CLI::App& app, std::function<Result<as_status>()>& action);
void add_tap_export_command(CLI::App& app, std::function<Result<as_status>()>& action);

}  // namespace attnscope
