// In which order the ops of a step are put on the streams of a device, and which stream waits for
// which. Branches of the graph are streams. A stream waits before an op for what it reads of other
// streams and has not waited for yet; the first op of a branch starts as soon as what it reads of
// the main path is there, whatever has been put behind that.
#pragma once

#include <vector>

#include "engine/family/op_graph.h"

namespace attnscope {

struct Launch {
  as_op_id op = AS_OP_COUNT;
  int layer = -1;  // index; -1 before and after the layers
  int stream = 0;
  std::vector<int> starts;  // streams that go on from where this op begins
  std::vector<int> after;   // streams that must be done first
};

// Of the ops before the layers those that kernels make lists by, whatever the step holds: neither
// decisions nor moves of blocks.
bool makes_list(as_op_id op);

// All layers and what comes after them. lists: with the ops that make lists before the layers, on
// a stream of their own beside the first layer.
std::vector<Launch> launch_order(const ModelGraph& graph, bool lists);
// The same ops, each after the one before it on the main stream.
std::vector<Launch> on_one_stream(std::vector<Launch> order);

}  // namespace attnscope
