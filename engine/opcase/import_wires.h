// Contradictions between the ops of an imported step. Each op alone may be right on its own inputs
// while one was given other values than another put out: a list of the step before, say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/family/op_graph.h"
#include "engine/opcase/import_tables.h"

namespace attnscope {

// A sentence for each input that is not what the graph's op put out, where the dump has both, and
// for the first request whose last position is not the end of its sequence. Compared is what
// another engine keeps whatever it converts: of lists which rows they name, whatever their order,
// width and padding; of floats more than 8-bit codes in between would change.
std::vector<std::string> contradictions(const ModelGraph& graph, std::int64_t step,
                                        const std::vector<PlacedCase>& ops);

}  // namespace attnscope
