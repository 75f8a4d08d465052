// Whether attention's output is merged of parts that were rounded before: those of ranks, or those
// of rows in a pool and of rows that were missed.
#pragma once

#include "engine/session/step/context_parallel.h"
#include "engine/session/step/session_parts.h"

namespace attnscope {

// layer: index among the running layers.
inline bool is_merged(const SessionParts& parts, int layer, as_op_id op) {
  if (layer < 0 || as_op_role(op) != AS_ROLE_ATTENTION) return false;
  if (parts.context.splits() && ContextParallel::attends(op)) return true;
  return parts.attend.of(parts.config.layers[static_cast<std::size_t>(layer)]) == Overlap::kDa &&
         parts.graph->layer(layer).find(AS_OP_EXCHANGE_ROWS) != nullptr;
}

}  // namespace attnscope
