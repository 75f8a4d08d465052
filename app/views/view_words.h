// What is looked at, as text to paste elsewhere: the place, the picked element with its values, and
// the command line that shows the same again.
#pragma once

#include <string>
#include <vector>

#include "app/views/selection.h"
#include "engine/session/snapshot.h"

namespace attnscope {

// "step 7, layer 2, sparse_attention; request 0 "manual", token 2051, head 3, block 17".
std::string place_words(const SessionInfo& info, const Place& place, const Selection& selection);

// "o: token 2051, head 3, dim 17: 0.0123, reference 0.0124"; values in full precision. Empty where
// no element is picked, or its tap has no values.
std::string element_words(const StepTrace& step, const OpTrace& op, const TapCopy& tap,
                          const Selection& selection);

// What shows the place and the selection, as commands of the app.
std::vector<std::string> view_commands(const Place& place, const Selection& selection,
                                       const std::string& layout);

// shown: a scenario's name or file, or a capture. lanes: as they were chosen; those of a capture
// are none. One line for a shell.
std::string view_command_line(const std::string& shown, const std::vector<std::string>& lanes,
                              const std::vector<std::string>& commands);

}  // namespace attnscope
