// Where the values of a step lie in one piece of memory: two that may be needed at once lie beside
// each other, others on each other.
//
//   const ValuePlaces places = place_values(graph, bytes);
//   char* q = memory + places.offset[q_value];
#pragma once

#include <cstddef>
#include <vector>

#include "engine/family/op_graph.h"

namespace attnscope {

struct ValuePlaces {
  std::vector<std::size_t> offset;  // by ValueId, multiples of 256
  std::size_t bytes = 0;            // of all together
};

// bytes: by ValueId, 0 = the value has no place here. The places hold whether ops run one after
// another or on the streams of launch_order(). A layer's input and output change places with each
// other at its end, so nothing else lies on them.
ValuePlaces place_values(const ModelGraph& graph, const std::vector<std::size_t>& bytes);

}  // namespace attnscope
