#include "engine/family/deepseek_v4/caches.h"
#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/family/step_nodes.h"
#include "engine/model/fp8_projections.h"

namespace attnscope {
namespace {

// Streams of a layer on a device, and rows of its drawing.
enum Branch { kMainPath, kCompressorPath, kKeyPath, kQueryPath };

// Parts of a layer as vLLM's implementation has them: what only reads the layer's input, side by
// side; norms of what it made; what becomes of it, with all writes of caches and the selection;
// attention; the way back.
enum Phase { kProjectionsPhase, kNormsPhase, kRowsPhase, kAttentionPhase, kOutputPhase };

Phase phase_of(as_op_id op) {
  switch (op) {
    case AS_OP_DRAFT_NORM:
    case AS_OP_DRAFT_H_PROJ:
    case AS_OP_DRAFT_E_PROJ:
    case AS_OP_DRAFT_SUM:
    case AS_OP_ATTN_NORM:
    case AS_OP_Q_KV_A_PROJ:
    case AS_OP_COMPRESSOR_PROJ:
    case AS_OP_INDEXER_COMPRESSOR_PROJ:
    case AS_OP_INDEXER_WEIGHTS_PROJ:
      return kProjectionsPhase;
    case AS_OP_Q_KV_NORM:
      return kNormsPhase;
    case AS_OP_SPARSE_ATTENTION:
      return kAttentionPhase;
    case AS_OP_INVERSE_ROPE:
    case AS_OP_WO_A:
    case AS_OP_WO_B:
    case AS_OP_RESIDUAL:
    case AS_OP_FINAL_NORM:
    case AS_OP_LM_HEAD:
    case AS_OP_SAMPLE:
      return kOutputPhase;
    default:
      return kRowsPhase;
  }
}

// Of a compressor: its weights, its caches, and the step's tensor with the slots of its entries.
struct CompressorParts {
  as_op_id proj_op, state_op, insert_op;
  const char *proj_id, *state_id, *insert_id;
  Branch branch;
  const char *kv_gate, *ape, *norm;  // weights
  CacheId state, entries;
  ValueId proj, row;
  std::int64_t dim;
};

class GraphOfV4 {
 public:
  explicit GraphOfV4(const ModelConfig& config) : config_(config) {
    graph_.branches = {"", "compressor", "indexer keys", "indexer queries"};
    graph_.phases = {"projections", "norms", "queries, rows, selection", "attention", "output"};
    graph_.hidden = hidden_;
    graph_.hidden_out = hidden_out_;
    graph_.layer_input = normed_;
    graph_.last = last_;
  }

  ModelGraph make() {
    graph_.before = before();
    for (int i = 0; i < config_.main_layers(); ++i) {
      graph_.layers.push_back(layer(type_of_layer(config_, i)));
    }
    graph_.after = after_layers(graph_, config_, "embedding");
    if (config_.draft_layers > 0) {
      graph_.draft_layer = config_.main_layers();
      graph_.layers.push_back(draft_layer());
    }
    return std::move(graph_);
  }

 private:
  LayerGraph before() {
    std::vector<Node> nodes;
    nodes.push_back(schedule_node());
    nodes.push_back(block_tables_node());
    nodes.push_back(slot_mapping_node()
                        .step("c4_slots", "c4_slots")
                        .step("c128_slots", "c128_slots")
                        .step("c4_lens", "c4_lens"));
    nodes.push_back(Node(AS_OP_SWA_INDEX, {}, kCompressorPath)
                        .step("tables", "tables/swa")
                        .step("query_start_loc", "query_start_loc")
                        .step("seq_lens", "seq_lens")
                        .step("token_to_req", "token_to_req")
                        .step("indices", "swa_indices")
                        .step("lens", "swa_lens"));
    if (has_type(config_, LayerType::kC128A)) {
      nodes.push_back(Node(AS_OP_C128_INDEX, {}, kKeyPath)
                          .step("table", "tables/mla")
                          .step("positions", "positions")
                          .step("token_to_req", "token_to_req")
                          .step("indices", "c128_indices")
                          .step("lens", "c128_lens"));
    }
    if (plans()) {
      nodes.push_back(Node(AS_OP_ATTENTION_PLAN, {}, kQueryPath)
                          .step("window_lens", "swa_lens")
                          .step("c4_lens", "c4_lens")
                          .step("c128_lens", "c128_lens")
                          .step("rows", "plan_rows")
                          .step("splits", "plan_splits")
                          .step("counts", "plan_counts"));
    }
    return LayerGraph(std::move(nodes));
  }

  // An ordinary layer with a window behind what it begins with, and a head:
  //   h' = h_proj hnorm(h) + e_proj enorm(embedding of the token behind)
  LayerGraph draft_layer() {
    const std::int64_t hidden = config_.hidden;
    const ValueId h = value("draft_h"), e = value("draft_e"), begin = value("draft_hidden");
    const ValueId h_part = value("draft_h_part"), e_part = value("draft_e_part");
    graph_.draft_out = value("draft_out");
    graph_.draft_last = value("draft_last");
    std::vector<Node> nodes;
    nodes.push_back(Node(AS_OP_DRAFT_NORM)
                        .reads("hidden", hidden_)
                        .weight("embedding", "embedding")
                        .step("tokens", "next_tokens")
                        .step("positions", "positions")
                        .weight("h_weight", "draft.hnorm")
                        .weight("e_weight", "draft.enorm")
                        .makes("h", h, AS_BF16, {kStepTokens, hidden})
                        .makes("e", e, AS_BF16, {kStepTokens, hidden}));
    nodes.push_back(Node(AS_OP_DRAFT_H_PROJ)
                        .reads("x", h)
                        .weight("weight", "draft.h_proj")
                        .makes("y", h_part, AS_BF16, {kStepTokens, hidden}));
    nodes.push_back(Node(AS_OP_DRAFT_E_PROJ)
                        .reads("x", e)
                        .weight("weight", "draft.e_proj")
                        .makes("y", e_part, AS_BF16, {kStepTokens, hidden}));
    nodes.push_back(Node(AS_OP_DRAFT_SUM)
                        .reads("h", h_part)
                        .reads("y", e_part)
                        .makes("out", begin, AS_BF16, {kStepTokens, hidden}));
    queries_and_rows(nodes, begin);
    attention(nodes, LayerType::kSwa);
    output(nodes, begin, graph_.draft_out);
    for (Node& node : draft_head(graph_, config_, "draft.norm", "embedding")) {
      nodes.push_back(std::move(node));
    }
    for (Node& node : nodes) node.in_phase(phase_of(node.op()));
    return LayerGraph(std::move(nodes));
  }

  LayerGraph layer(LayerType type) {
    const int ratio = type == LayerType::kC4A ? 4 : type == LayerType::kC128A ? 128 : 0;
    std::vector<Node> nodes;
    queries_and_rows(nodes, hidden_);
    if (ratio != 0) {
      compressor(nodes, ratio,
                 {AS_OP_COMPRESSOR_PROJ, AS_OP_COMPRESSOR_STATE, AS_OP_COMPRESS_INSERT, "", "", "",
                  kCompressorPath, "compressor.kv_gate", "compressor.ape", "compressor.norm",
                  kMainStateCache, kMainCache, proj_, row_, config_.head_dim});
    }
    if (type == LayerType::kC4A) {
      compressor(
          nodes, ratio,
          {AS_OP_INDEXER_COMPRESSOR_PROJ, AS_OP_INDEXER_COMPRESSOR_STATE,
           AS_OP_INDEXER_COMPRESS_INSERT, "indexer/compressor_proj", "indexer/compressor_state",
           "indexer/compress_insert", kKeyPath, "indexer.kv_gate", "indexer.ape", "indexer.norm",
           kIndexStateCache, kIndexCache, index_proj_, index_row_, config_.index_dim});
      indexer(nodes);
    }
    attention(nodes, type);
    output(nodes, hidden_, hidden_out_);
    for (Node& node : nodes) node.in_phase(phase_of(node.op()));
    return LayerGraph(std::move(nodes));
  }

  void queries_and_rows(std::vector<Node>& nodes, ValueId hidden) {
    const std::int64_t heads = config_.heads, dim = config_.head_dim;
    nodes.push_back(Node(AS_OP_ATTN_NORM)
                        .reads("x", hidden)
                        .weight("weight", "attn_norm")
                        .makes("y", normed_, AS_BF16, {kStepTokens, config_.hidden}));
    nodes.push_back(Node(AS_OP_Q_KV_A_PROJ)
                        .reads("x", normed_)
                        .weight("weight", "wq_kv_a")
                        .makes("y", qkv_, AS_BF16, {kStepTokens, config_.q_lora + dim}));
    nodes.push_back(Node(AS_OP_Q_KV_NORM)
                        .reads("qkv", qkv_)
                        .weight("q_weight", "q_norm")
                        .weight("kv_weight", "kv_norm")
                        .makes("qr", qr_, AS_BF16, {kStepTokens, config_.q_lora})
                        .makes("kv", kv_, AS_BF16, {kStepTokens, dim}));
    nodes.push_back(Node(AS_OP_Q_B_PROJ)
                        .reads("x", qr_)
                        .weight("weight", "wq_b")
                        .makes("y", q_raw_, AS_BF16, {kStepTokens, heads, dim}, {heads * dim}));
    nodes.push_back(Node(AS_OP_Q_ROPE_KV_INSERT)
                        .reads("q_raw", q_raw_)
                        .reads("kv", kv_)
                        .step("positions", "positions")
                        .slots("slots", kSwaCache, "slots")
                        .makes("q", q_, AS_BF16, {kStepTokens, heads, dim})
                        .makes("kv_row", kv_row_, AS_BF16, {kStepTokens, dim})
                        .cache("cache", kSwaCache));
  }

  void compressor(std::vector<Node>& nodes, int ratio, const CompressorParts& c) {
    const std::int64_t overlap = ratio == 4 ? 2 : 1;
    nodes.push_back(Node(c.proj_op, c.proj_id, c.branch)
                        .reads("x", normed_)
                        .weight("weight", c.kv_gate)
                        .makes("y", c.proj, AS_F32, {kStepTokens, 2 * overlap * c.dim}));
    nodes.push_back(Node(c.state_op, c.state_id, c.branch)
                        .reads("proj", c.proj)
                        .weight("ape", c.ape)
                        .step("positions", "positions")
                        .slots("slots", c.state, "slots")
                        .cache("state", c.state));
    nodes.push_back(Node(c.insert_op, c.insert_id, c.branch)
                        .cache("state", c.state)
                        .table("table", c.state, "tables")
                        .step("token_to_req", "token_to_req")
                        .step("positions", "positions")
                        .slots("slots", c.entries, ratio == 4 ? "c4_slots" : "c128_slots")
                        .weight("weight", c.norm)
                        .makes("row", c.row, AS_BF16, {kStepTokens, c.dim})
                        .cache("cache", c.entries));
  }

  void indexer(std::vector<Node>& nodes) {
    const std::int64_t heads = config_.index_heads, dim = config_.index_dim;
    const std::int64_t selected = config_.index_topk;
    const bool fp4 = config_.switches.index_format == AS_RECORD_INDEX_MXFP4;
    // On a device both products go before the larger one that fills it: a chain of ops waits for
    // them.
    nodes.push_back(Node(AS_OP_INDEXER_Q_PROJ, "indexer/q_proj", kQueryPath)
                        .reads("x", qr_)
                        .weight("weight", "indexer.wq_b")
                        .makes("y", index_q_raw_, AS_BF16, {kStepTokens, heads, dim}, {heads * dim})
                        .launched_before(AS_OP_Q_B_PROJ));
    nodes.push_back(Node(AS_OP_INDEXER_WEIGHTS_PROJ, "indexer/weights_proj", kQueryPath)
                        .reads("x", normed_)
                        .weight("weight", "indexer.weights_proj")
                        .makes("y", index_weights_raw_, AS_BF16, {kStepTokens, heads})
                        .launched_before(AS_OP_INDEXER_Q_PROJ));
    Node query = Node(AS_OP_INDEXER_Q, "indexer/q", kQueryPath)
                     .reads("q_raw", index_q_raw_)
                     .reads("weights_raw", index_weights_raw_)
                     .step("positions", "positions")
                     .makes("q_row", index_q_row_, AS_BF16, {kStepTokens, heads, dim})
                     .makes_codes("q", index_q_, {kStepTokens, heads, fp4 ? dim / 2 : dim},
                                  {kStepTokens, heads, dim})
                     .makes("weights", index_weights_, AS_F32, {kStepTokens, heads});
    Node logits = Node(AS_OP_INDEXER_LOGITS, "indexer/logits", kQueryPath)
                      .reads("q", index_q_)
                      .reads("weights", index_weights_)
                      .cache("cache", kIndexCache)
                      .table("table", kIndexCache, "tables")
                      .step("token_to_req", "token_to_req")
                      .step("lens", "c4_lens")
                      .makes("logits", logits_, AS_F32, {kStepTokens, kScoreColumns});
    if (fp4) {
      query.makes_codes("q_scale", index_q_scale_, {kStepTokens, heads, 4}, {});
      logits.reads("q_scale", index_q_scale_);
    }
    nodes.push_back(std::move(query));
    nodes.push_back(std::move(logits));
    nodes.push_back(Node(AS_OP_INDEXER_TOPK, "indexer/topk", kQueryPath)
                        .reads("logits", logits_)
                        .step("lens", "c4_lens")
                        .makes("indices", top_k_, AS_I32, {kStepTokens, selected}));
    nodes.push_back(Node(AS_OP_TOPK_TO_SLOTS, {}, kQueryPath)
                        .reads("indices", top_k_)
                        .table("table", kMainCache, "tables")
                        .step("token_to_req", "token_to_req")
                        .makes("slots", top_k_slots_, AS_I32, {kStepTokens, selected})
                        .makes("lens", top_k_lens_, AS_I32, {kStepTokens}));
    if (config_.host_rows) {
      nodes.push_back(exchange_rows_node(graph_, kMainCache, top_k_slots_, selected, kQueryPath));
    }
  }

  void attention(std::vector<Node>& nodes, LayerType type) {
    const std::int64_t heads = config_.heads, dim = config_.head_dim;
    Node node = Node(AS_OP_SPARSE_ATTENTION)
                    .reads("q", q_)
                    .cache("cache", kSwaCache)
                    .step("indices", "swa_indices")
                    .step("topk_length", "swa_lens")
                    .weight("sinks", "sinks")
                    .makes("o", o_, AS_BF16, {kStepTokens, heads, dim})
                    .makes("lse", lse_, AS_F32, {kStepTokens, heads});
    if (config_.switches.gathered_prefill) node.step("prefill", "prefill_parts");
    if (type != LayerType::kSwa) node.cache("extra_cache", kMainCache);
    if (type == LayerType::kC4A) {
      node.reads("extra_indices", config_.host_rows ? graph_.exchange.slots : top_k_slots_)
          .reads("extra_topk_length", top_k_lens_);
    } else if (type == LayerType::kC128A) {
      node.step("extra_indices", "c128_indices").step("extra_topk_length", "c128_lens");
    }
    if (plans()) node.step("plan_rows", "plan_rows").step("plan_splits", "plan_splits");
    nodes.push_back(std::move(node));
  }

  void output(std::vector<Node>& nodes, ValueId hidden, ValueId hidden_out) {
    const std::int64_t heads = config_.heads, dim = config_.head_dim, groups = config_.o_groups;
    const std::int64_t low = config_.o_lora, group_in = config_.heads_per_group() * dim;
    Node turn = Node(AS_OP_INVERSE_ROPE).reads("o", o_).step("positions", "positions");
    Node mix = Node(AS_OP_WO_A);
    if (groups_run_in_fp8(config_, low, group_in)) {
      turn.makes("row", o_rotated_, AS_BF16, {kStepTokens, heads, dim})
          .makes_codes("codes", o_codes_, {kStepTokens, heads, dim}, {kStepTokens, heads, dim})
          .makes_codes("scales", o_scales_, {kStepTokens, heads, dim / kScaleBlock}, {}, AS_F32);
      mix.reads("x", o_codes_, {groups, group_in})
          .reads("x_scale", o_scales_, {groups, group_in / kScaleBlock});
    } else {
      turn.makes("out", o_rotated_, AS_BF16, {kStepTokens, heads, dim});
      mix.reads("x", o_rotated_, {groups, group_in});
    }
    nodes.push_back(std::move(turn));
    nodes.push_back(
        mix.weight("weight", "wo_a").makes("y", z_, AS_BF16, {kStepTokens, groups, low}));
    nodes.push_back(Node(AS_OP_WO_B)
                        .reads("x", z_, {groups * low})
                        .weight("weight", "wo_b")
                        .makes("y", y_, AS_BF16, {kStepTokens, config_.hidden}));
    nodes.push_back(Node(AS_OP_RESIDUAL)
                        .reads("h", hidden)
                        .reads("y", y_)
                        .makes("out", hidden_out, AS_BF16, {kStepTokens, config_.hidden}));
  }

  bool plans() const { return config_.switches.attention_plan != AS_PLAN_NONE; }
  ValueId value(const char* name) { return graph_.add_value(name); }
  const ModelConfig& config_;
  ModelGraph graph_;

  const ValueId hidden_ = value("hidden"), normed_ = value("normed"), qkv_ = value("qkv");
  const ValueId qr_ = value("qr"), kv_ = value("kv"), q_raw_ = value("q_raw"), q_ = value("q");
  const ValueId kv_row_ = value("kv_row"), proj_ = value("proj"), row_ = value("row");
  const ValueId index_proj_ = value("index_proj"), index_row_ = value("index_row");
  const ValueId index_q_raw_ = value("index_q_raw");
  const ValueId index_weights_raw_ = value("index_weights_raw");
  const ValueId index_q_row_ = value("index_q_row"), index_q_ = value("index_q");
  const ValueId index_q_scale_ = value("index_q_scale");
  const ValueId index_weights_ = value("index_weights"), logits_ = value("logits");
  const ValueId top_k_ = value("top_k"), top_k_slots_ = value("top_k_slots");
  const ValueId top_k_lens_ = value("top_k_lens"), o_ = value("o"), lse_ = value("lse");
  const ValueId o_rotated_ = value("o_rotated"), z_ = value("z"), y_ = value("y");
  const ValueId hidden_out_ = value("hidden_out"), last_ = value("last");
  const ValueId last_normed_ = value("last_normed"), head_logits_ = value("head_logits");
  const ValueId sampled_ = value("sampled");
  const ValueId o_codes_ = value("o_codes"), o_scales_ = value("o_scales");
};

}  // namespace

ModelGraph deepseek_v4_graph(const ModelConfig& config) { return GraphOfV4(config).make(); }

}  // namespace attnscope
