// attnscope train ..: small models and their indexers, trained on the machine at hand.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "kernels/params/result.h"

namespace attnscope {

// Subcommands of `app`; the one that is called stores what to do in `action`.
void add_train_command(CLI::App& app, std::function<Result<as_status>()>& action);

}  // namespace attnscope
