// The commands that make, show, compare and send captures, those of single ops' cases, of plugins,
// and those of goldens.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "kernels/params/result.h"

namespace attnscope {

// Subcommands of `app`; the one that is called stores what to do in `action`.
void add_capture_commands(CLI::App& app, std::function<Result<as_status>()>& action);
void add_diff_command(CLI::App& app, std::function<Result<as_status>()>& action);
void add_case_commands(CLI::App& app, std::function<Result<as_status>()>& action);
void add_case_edit(CLI::App& case_group, std::function<Result<as_status>()>& action);
void add_case_explain(CLI::App& case_group, std::function<Result<as_status>()>& action);
void add_case_import(CLI::App& case_group, std::function<Result<as_status>()>& action);
void add_plugin_commands(CLI::App& app, std::function<Result<as_status>()>& action);
void add_golden_commands(CLI::App& app, std::function<Result<as_status>()>& action);

}  // namespace attnscope
