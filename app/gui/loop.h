// The loop of a window: which frames are due, what is done between them, until the window closes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/gui/gui.h"
#include "app/gui/platform.h"

namespace attnscope::gui {

double now_seconds();  // of a clock that only goes forward

// Said on the screen and on the terminal.
void complain(App& app, const Error& error);

// Writes the picture that a command wanted of the frame that was rendered last, if one did.
void write_due_picture(App& app, Platform& platform);

// Frames are drawn while something moves; else the loop waits for the next event. All input that
// has arrived is handled before it waits, several changes of keys for one picture.
// commands: run one by one, each once the session is idle, after the first picture.
Result<void> run_loop(App& app, Platform& platform, const std::vector<std::string>& commands,
                      const std::function<void()>& first_picture);

}  // namespace attnscope::gui
