// Who reads and writes one row of the cache in a step: a slot's life beside that of its block.
#pragma once

#include <cstdint>
#include <string>

#include "engine/session/snapshot.h"

namespace attnscope {

struct SlotName {
  int group = -1;
  std::int32_t block = -1, row = -1;
};

struct SlotTraffic {
  std::int64_t reads = 0;   // tokens that read it, each once a layer
  std::int64_t writes = 0;  // ops that wrote it
  std::string words;  // "written by q_rope_kv_insert, layers 0, 1; read by 3 tokens in layer 0"
};
// Reads are those of the tokens that the trace keeps. Rows without lists of slots count the tokens
// that read their block.
SlotTraffic slot_traffic(const SessionInfo& info, const StepTrace& step, const SlotName& slot);

}  // namespace attnscope
