// The plugins of this process: opened once, lanes of every registry from then on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/plugin/plugin_lane.h"

namespace attnscope {

struct PluginChoice {
  std::vector<std::string> libraries;
  bool in_process = false;
  double seconds_limit = 10;
};

// Opens all of them, in the place of those that were open: no session of these may be left. Two of
// one name: AS_USAGE.
Result<void> open_plugins(const PluginChoice& choice);
const std::vector<std::unique_ptr<PluginLane>>& plugins();
PluginLane* find_plugin(const std::string& lane);  // "plugin:NAME"; nullptr = not open

// Per op that ran: calls, the plugin's time beside our own; then the faults. Empty = nothing ran.
std::string plugin_report();
// What went wrong so far: "plugin:NAME: OP crashed ..". Results of such a run are not kept for
// others.
std::vector<std::string> plugin_faults();
// What open_plugins() was given last.
const PluginChoice& plugin_choice();
// What failed since the last call, a sentence each with who carries out the op from then on. Any
// thread.
std::vector<std::string> take_plugin_faults();

}  // namespace attnscope
