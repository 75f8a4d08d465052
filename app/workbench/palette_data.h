// What the palette finds in the data itself: tokens, blocks, entries, heads, steps with events of a
// kind, and text of the prompts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/workbench/palette_list.h"

namespace attnscope {

// Of what is named outright:
//   "token 1500", "token 1500 of manual"   to select it, and to go to the step that computed it
//   "block 211", "head 3", "request 1"     to select it
//   "entry 375", "entry 375 of C4A"        to select the selected request's
//   "layer 2", "step 7"                    to go there
//   "eviction", "preempt", "hit"           the newest steps with such an event
// Empty where nothing of the sort was typed; a note where what was named is not there.
// request: the selected one. snapshot: not null.
std::vector<PaletteItem> named_data(const std::string& typed, const Snapshot& snapshot,
                                    const Place& cursor, std::int32_t request);

// Tokens of the prompts at which the text stands, the first ones of every request; texts of fewer
// than three bytes are not looked for. Letters of ASCII count alike in both cases.
std::vector<PaletteItem> prompt_data(const std::string& typed, const Snapshot& snapshot);

}  // namespace attnscope
