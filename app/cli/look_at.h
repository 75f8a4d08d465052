// Brings a session to the op that a command looks at.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "app/cli/look_commands.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// Runs the scenario until the op at `place` has just run; after_op, where given, is asked after
// every op on the way, that one included. check, where given, is asked before anything runs.
Result<std::unique_ptr<Session>> session_at(
    const LookAt& at, const Place& place, const std::function<void(const Session&)>& after_op,
    const std::function<Result<void>(const Scenario&)>& check = {});

// For CLI::App::check on --profile: empty, or what is wrong with it.
std::string check_profile(const std::string& profile);
inline constexpr const char* kSerialHelp =
    "On a GPU each op waits for the one before it, in place of branches beside each other";
inline constexpr const char* kProfileHelp =
    "vllm or deepseek, then switches set otherwise: vllm,q_norm=bf16 (default: the scenario's)";
// A scenario with the switches of a profile; empty = its own.
Result<Scenario> scenario_with_profile(const std::string& name, const std::string& profile,
                                       const ModelChoice& model = {});
// The scenario with the command's profile.
Result<Scenario> scenario_of(const LookAt& at);
// With the command's lanes and threads beside ref.sim; nothing goes back.
SessionOptions session_options(const LookAt& at);

}  // namespace attnscope
