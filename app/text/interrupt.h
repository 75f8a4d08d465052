// SIGINT (Ctrl-C) and SIGTERM for commands that run for long: they end with what was done so far.
//
//   catch_interrupts();
//   while (more() && !interrupted()) ..
//   if (interrupted()) report["interrupted"] = interrupt_name(), ended_early();
//
// A second signal ends the program at once, as both do to commands that do not catch them. A signal
// that was ignored when the program started (nohup) stays ignored.
#pragma once

#include <string>

namespace attnscope {

// From now on the first of either is taken note of. Forgets an earlier one.
void catch_interrupts();
// The number of the signal that came; 0 = none.
int interrupted();
// "SIGINT"; empty when none came.
std::string interrupt_name();

// Said by a command that left something undone because of the signal.
void ended_early();
// 128 and the number of the signal when a command said so, else 0.
int exit_code_of_interrupt();

}  // namespace attnscope
