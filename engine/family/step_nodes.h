// Nodes that the graphs of all families begin with: what is decided, the tables of the step, and
// where new rows go.
#pragma once

#include "engine/family/op_graph.h"

namespace attnscope {

Node schedule_node();
Node block_tables_node();
// With the slots of every group; a family adds what it has beside them.
Node slot_mapping_node();

}  // namespace attnscope
