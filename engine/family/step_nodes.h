// Nodes that the graphs of all families begin and end with: what is decided, the tables of the
// step, where new rows go; the sampled rows, normed, multiplied with the head, their largest logit.
#pragma once

#include "engine/family/op_graph.h"

namespace attnscope {

Node schedule_node();
// Behind what is decided, where blocks of preempted requests wait in host memory.
std::vector<Node> swap_nodes();
Node block_tables_node();
// With the slots of every group; a family adds what it has beside them.
Node slot_mapping_node();
// exchange_rows behind topk_to_slots, whose slots `selected` are, `listed` of a token; sets
// ModelGraph::exchange. rows: the cache that the layer selects from.
Node exchange_rows_node(ModelGraph& graph, CacheId rows, ValueId selected, std::int64_t listed,
                        int branch);
// final_norm, lm_head and sample, of ModelGraph::last, whose values they add; sets
// ModelGraph::sampled. head: the weight that it is.
LayerGraph after_layers(ModelGraph& graph, const ModelConfig& config, std::string_view head);
// The same at the end of a draft layer, of ModelGraph::draft_last; sets ModelGraph::drafted. norm:
// its weight.
std::vector<Node> draft_head(ModelGraph& graph, const ModelConfig& config, std::string_view norm,
                             std::string_view head);

}  // namespace attnscope
