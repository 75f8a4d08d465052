// Layers that read the keys and values of another one, in words: "Layer 5 shares with layer 3."
#pragma once

#include <string>

#include "engine/session/snapshot.h"

namespace attnscope {

// Of a published layer that runs: as a sentence with a space before it, whose rows it reads and
// what that spares it, or which layers read its own too. Empty: neither.
std::string sharing_sentence(const SessionInfo& info, int layer);

}  // namespace attnscope
