// What the palette offers for what is typed into it.
#pragma once

#include <string>
#include <vector>

#include "app/workbench/command_registry.h"
#include "engine/session/snapshot.h"

namespace attnscope {

struct PaletteItem {
  enum class Kind {
    kCommand,  // runs it, or asks for its value
    kPlace,    // goes to an op
    kValue,    // runs a command with the value that was typed
    kNote      // says something, does nothing
  } kind = Kind::kCommand;
  std::string id;   // of the command
  std::string run;  // "id" or "id=value"
  std::string title;
  std::string group;
  std::string detail;  // help, or the failure of a step
  bool asks = false;   // the command needs a value before it runs
};

// Says something, does nothing.
PaletteItem palette_note(std::string title, std::string detail);

// text: what was typed. recent: ids, newest first; they lead while nothing is typed. cursor: whose
// layer and op a lone step number means. request: the selected one. snapshot may be null.
//   "7", "7/2/indexer_topk"   a place
//   "@"                       steps with wrong taps
//   "id=value"                that command
//   "token 1500", "block 211", "evict"   what is in the data (palette_data.h), then commands
//   anything else             commands, best first, then where the prompts have that text
std::vector<PaletteItem> palette_items(const CommandRegistry& commands, const std::string& text,
                                       const std::vector<std::string>& recent,
                                       const Snapshot* snapshot, const Place& cursor,
                                       std::int32_t request = -1);

}  // namespace attnscope
