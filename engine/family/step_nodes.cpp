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

// Which blocks there are the session says.
std::vector<Node> swap_nodes() { return {Node(AS_OP_SWAP_OUT), Node(AS_OP_SWAP_IN)}; }

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

Node exchange_rows_node(ModelGraph& graph, CacheId rows, ValueId selected, std::int64_t listed,
                        int branch) {
  ModelGraph::Exchange& e = graph.exchange;
  if (e.slots == kNoValue) {
    e = {.selected = selected,
         .slots = graph.add_value("pool_slots"),
         .places = graph.add_value("pool_places"),
         .fresh_from = graph.add_value("fresh_from"),
         .pages_to = graph.add_value("pages_to"),
         .missed_from = graph.add_value("missed_from"),
         .pool_to = graph.add_value("pool_to")};
  }
  return Node(AS_OP_EXCHANGE_ROWS, {}, branch)
      .reads("selected", selected)
      .reads("places", e.places)
      .makes("slots", e.slots, AS_I32, {kStepTokens, listed})
      .cache("fresh", rows)
      .reads("fresh_from", e.fresh_from)
      .cache("pages", rows)
      .reads("pages_to", e.pages_to)
      .cache("missed", rows)
      .reads("missed_from", e.missed_from)
      .cache("pool", rows)
      .reads("pool_to", e.pool_to);
}

namespace {

struct Head {
  ValueId last, normed, logits, sampled;
  std::string_view norm, head;  // weights
};

std::vector<Node> head_nodes(const ModelConfig& config, const Head& h) {
  return {Node(AS_OP_FINAL_NORM)
              .reads("x", h.last)
              .weight("weight", h.norm)
              .makes("y", h.normed, AS_BF16, {kSampledRows, config.hidden}),
          Node(AS_OP_LM_HEAD)
              .reads("x", h.normed)
              .weight("weight", h.head)
              .makes("y", h.logits, AS_F32, {kSampledRows, config.vocabulary}),
          Node(AS_OP_SAMPLE)
              .reads("logits", h.logits)
              .makes("tokens", h.sampled, AS_I32, {kSampledRows})};
}

}  // namespace

LayerGraph after_layers(ModelGraph& graph, const ModelConfig& config, std::string_view head) {
  const ValueId normed = graph.add_value("last_normed"), logits = graph.add_value("head_logits");
  graph.sampled = graph.add_value("sampled");
  return LayerGraph(
      head_nodes(config, {graph.last, normed, logits, graph.sampled, "final_norm", head}));
}

std::vector<Node> draft_head(ModelGraph& graph, const ModelConfig& config, std::string_view norm,
                             std::string_view head) {
  const ValueId normed = graph.add_value("draft_normed"), logits = graph.add_value("draft_logits");
  graph.drafted = graph.add_value("drafted");
  return head_nodes(config, {graph.draft_last, normed, logits, graph.drafted, norm, head});
}

}  // namespace attnscope
