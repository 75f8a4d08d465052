// A small capture and a small kept session, recorded by the engine alone: what fuzzers and hostile
// files start from.
#pragma once

#include <memory>
#include <string>

#include "engine/session/session.h"

namespace attnscope::fuzz {

// Two layers, one request of a few tokens.
Scenario small_scenario();
std::unique_ptr<Session> small_session();

// All taps of all its steps and the blocks after the second one. Throws when that fails.
void record_small_capture(const std::string& folder);

}  // namespace attnscope::fuzz
