// attnscope backends ..: which attention backend vLLM takes for a model, and what backends keep.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "kernels/params/result.h"

namespace attnscope {

// Subcommands of `app`; the one that is called stores what to do in `action`.
void add_backends_command(CLI::App& app, std::function<Result<as_status>()>& action);

}  // namespace attnscope
