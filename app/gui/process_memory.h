// What the app takes of the machine's memory.
#pragma once

#include <cstdint>

namespace attnscope::gui {

// Once, before threads begin: what is freed, as when a session with references is closed, goes back
// to the system, in place of staying with each thread.
void give_memory_back();

// Resident set of the process; 0 where the system does not tell.
std::int64_t resident_bytes();

}  // namespace attnscope::gui
