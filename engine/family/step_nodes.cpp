#include "engine/family/step_nodes.h"

namespace attnscope {

Node schedule_node() {
  return Node(AS_OP_SCHEDULE)
      .step("groups", "groups")
      .step("num_tokens", "num_tokens")
      .step("num_before", "num_before")
      .step("running", "running")
      .step("joins", "joins")
      .step("lost_to", "lost_to")
      .step("matching", "matching")
      .step("num_computed", "num_computed")
      .step("num_scheduled_tokens", "num_scheduled_tokens");
}

Node block_tables_node() {
  return Node(AS_OP_BLOCK_TABLES)
      .step("groups", "groups")
      .step("num_computed", "num_computed")
      .step("num_scheduled_tokens", "num_scheduled_tokens")
      .step("joins", "joins")
      .step("blocks", "blocks")
      .step("tables_before", "tables_before")
      .step("counts_before", "counts_before")
      .step("tables", "tables")
      .step("counts", "counts");
}

Node slot_mapping_node() {
  return Node(AS_OP_SLOT_MAPPING)
      .step("groups", "groups")
      .step("tables", "tables")
      .step("positions", "positions")
      .step("token_to_req", "token_to_req")
      .step("slots", "slots");
}

LayerGraph after_layers(ModelGraph& graph, const ModelConfig& config, std::string_view head) {
  const ValueId normed = graph.add_value("last_normed"), logits = graph.add_value("head_logits");
  graph.sampled = graph.add_value("sampled");
  return LayerGraph({Node(AS_OP_FINAL_NORM)
                         .reads("x", graph.last)
                         .weight("weight", "final_norm")
                         .makes("y", normed, AS_BF16, {kSampledRows, config.hidden}),
                     Node(AS_OP_LM_HEAD)
                         .reads("x", normed)
                         .weight("weight", head)
                         .makes("y", logits, AS_F32, {kSampledRows, config.vocabulary}),
                     Node(AS_OP_SAMPLE)
                         .reads("logits", logits)
                         .makes("tokens", graph.sampled, AS_I32, {kSampledRows})});
}

}  // namespace attnscope
