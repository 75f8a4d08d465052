// How far a stack of layers that see windows, or chunks, reaches: which tokens can have a part in
// what a layer makes of one token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

struct ReachRow {
  int layer = 0;           // published
  std::string type;        // "sliding"
  std::int64_t first = 0;  // position that is reached through this layer and those before it
};

struct ReachView {
  std::string sentence;        // through the layer that is looked at; empty = nothing to show
  std::int64_t position = -1;  // of the token
  std::vector<ReachRow> rows;  // by running layer; empty where every layer sees all
  int selected = -1;           // row of the layer that is looked at
};

// layer: published. Models whose rows are found by position alone: others see entries, too.
ReachView reach_view(const SessionInfo& info, int layer, std::int64_t position);

}  // namespace attnscope
