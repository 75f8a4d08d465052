#include "engine/family/mla/mla.h"
#include "engine/family/step_nodes.h"
#include "kernels/params/mla_params.h"

namespace attnscope {
namespace {

// Streams of a layer on a device, and rows of its drawing.
enum MlaPath { kMlaMainPath, kMlaRowPath, kMlaKeyPath, kMlaQueryPath };

enum MlaPhase { kMlaProjections, kMlaNorms, kMlaRows, kMlaAttention, kMlaOutput };

MlaPhase mla_phase_of(as_op_id op) {
  switch (op) {
    case AS_OP_ATTN_NORM:
    case AS_OP_Q_KV_A_PROJ:
    case AS_OP_INDEX_K_PROJ:
    case AS_OP_INDEX_WEIGHTS_PROJ:
      return kMlaProjections;
    case AS_OP_Q_KV_NORM:
      return kMlaNorms;
    case AS_OP_MLA_ATTENTION:
    case AS_OP_SPARSE_MLA_ATTENTION:
      return kMlaAttention;
    case AS_OP_MLA_V_UP:
    case AS_OP_O_PROJ:
    case AS_OP_RESIDUAL:
      return kMlaOutput;
    default:
      return kMlaRows;
  }
}

class GraphOfMla {
 public:
  explicit GraphOfMla(const ModelConfig& config) : config_(config) {
    graph_.branches = {"", "latent rows", "index keys", "index queries"};
    graph_.phases = {"projections", "norms", "queries, rows, selection", "attention", "output"};
    graph_.hidden = hidden_;
    graph_.hidden_out = hidden_out_;
    graph_.layer_input = normed_;
    graph_.last = last_;
  }

  ModelGraph make() {
    Node slots = slot_mapping_node();
    if (mla_selects(config_)) slots.step("seen_lens", "seen_lens");
    graph_.before = LayerGraph({schedule_node(), block_tables_node(), std::move(slots)});
    for (int i = 0; i < config_.num_layers(); ++i)
      graph_.layers.push_back(layer(mla_selects(config_, i)));
    graph_.after = after_layers(graph_, config_, config_.mla.tied ? "embedding" : "lm_head");
    return std::move(graph_);
  }

 private:
  LayerGraph layer(bool selects) {
    std::vector<Node> nodes;
    queries_and_rows(nodes);
    // Where rows come from host memory attention may begin while they do.
    const bool early = selects && config_.host_rows;
    if (early) absorb_queries(nodes);
    if (selects) indexer(nodes);
    if (!early) absorb_queries(nodes);
    attention(nodes, selects);
    output(nodes);
    for (Node& node : nodes) node.in_phase(mla_phase_of(node.op()));
    return LayerGraph(std::move(nodes));
  }

  void queries_and_rows(std::vector<Node>& nodes) {
    const std::int64_t heads = config_.heads, size = config_.mla.nope_dim + config_.rope_dim;
    const std::int64_t q_lora = config_.q_lora;
    nodes.push_back(Node(AS_OP_ATTN_NORM)
                        .reads("x", hidden_)
                        .weight("weight", "attn_norm")
                        .makes("y", normed_, AS_BF16, {kStepTokens, config_.hidden}));
    nodes.push_back(Node(AS_OP_Q_KV_A_PROJ)
                        .reads("x", normed_)
                        .weight("weight", "q_kv_a")
                        .makes("y", qkv_, AS_BF16, {kStepTokens, q_lora + AS_MLA_WIDTH}));
    nodes.push_back(Node(AS_OP_Q_KV_NORM)
                        .reads("qkv", qkv_)
                        .weight("q_weight", "q_norm")
                        .weight("kv_weight", "kv_norm")
                        .makes("qr", qr_, AS_BF16, {kStepTokens, q_lora})
                        .makes("kv", kv_, AS_BF16, {kStepTokens, AS_MLA_LATENT}));
    nodes.push_back(Node(AS_OP_Q_B_PROJ)
                        .reads("x", qr_)
                        .weight("weight", "q_b")
                        .makes("y", q_raw_, AS_BF16, {kStepTokens, heads, size}, {heads * size}));
    nodes.push_back(Node(AS_OP_MLA_KV_INSERT, {}, kMlaRowPath)
                        .reads("kv", kv_)
                        .reads("qkv", qkv_)
                        .step("positions", "positions")
                        .slots("slots", kLatentCache, "slots")
                        .makes("kv_row", kv_row_, AS_BF16, {kStepTokens, AS_MLA_WIDTH})
                        .cache("cache", kLatentCache));
  }

  void indexer(std::vector<Node>& nodes) {
    const std::int64_t heads = config_.index_heads, dim = config_.index_dim;
    const std::int64_t selected = config_.index_topk;
    nodes.push_back(Node(AS_OP_INDEX_K_PROJ, "indexer/k_proj", kMlaKeyPath)
                        .reads("x", normed_)
                        .weight("weight", "indexer.wk")
                        .makes("y", index_k_, AS_BF16, {kStepTokens, dim}));
    nodes.push_back(Node(AS_OP_INDEX_KEY_INSERT, "indexer/key_insert", kMlaKeyPath)
                        .reads("k", index_k_)
                        .weight("weight", "indexer.k_norm")
                        .weight("bias", "indexer.k_bias")
                        .step("positions", "positions")
                        .slots("slots", kTokenIndexCache, "slots")
                        .makes("row", index_row_, AS_BF16, {kStepTokens, dim})
                        .cache("cache", kTokenIndexCache));
    nodes.push_back(Node(AS_OP_INDEXER_Q_PROJ, "indexer/q_proj", kMlaQueryPath)
                        .reads("x", qr_)
                        .weight("weight", "indexer.wq_b")
                        .makes("y", index_q_raw_, AS_BF16, {kStepTokens, heads, dim}, {heads * dim})
                        .launched_before(AS_OP_Q_B_PROJ));
    nodes.push_back(Node(AS_OP_INDEX_WEIGHTS_PROJ, "indexer/weights_proj", kMlaQueryPath)
                        .reads("x", normed_)
                        .weight("weight", "indexer.weights_proj")
                        .makes("y", index_weights_raw_, AS_F32, {kStepTokens, heads})
                        .launched_before(AS_OP_INDEXER_Q_PROJ));
    nodes.push_back(
        Node(AS_OP_INDEX_QUERY, "indexer/query", kMlaQueryPath)
            .reads("q_raw", index_q_raw_)
            .reads("weights_raw", index_weights_raw_)
            .step("positions", "positions")
            .makes("q_row", index_q_row_, AS_BF16, {kStepTokens, heads, dim})
            .makes_codes("q", index_q_, {kStepTokens, heads, dim}, {kStepTokens, heads, dim})
            .makes("weights", index_weights_, AS_F32, {kStepTokens, heads}));
    nodes.push_back(Node(AS_OP_INDEXER_LOGITS, "indexer/logits", kMlaQueryPath)
                        .reads("q", index_q_)
                        .reads("weights", index_weights_)
                        .cache("cache", kTokenIndexCache)
                        .table("table", kTokenIndexCache, "tables")
                        .step("token_to_req", "token_to_req")
                        .step("lens", "seen_lens")
                        .makes("logits", logits_, AS_F32, {kStepTokens, kScoreColumns}));
    nodes.push_back(Node(AS_OP_INDEXER_TOPK, "indexer/topk", kMlaQueryPath)
                        .reads("logits", logits_)
                        .step("lens", "seen_lens")
                        .makes("indices", top_k_, AS_I32, {kStepTokens, selected}));
    nodes.push_back(Node(AS_OP_TOPK_TO_SLOTS, {}, kMlaQueryPath)
                        .reads("indices", top_k_)
                        .table("table", kLatentCache, "tables")
                        .step("token_to_req", "token_to_req")
                        .makes("slots", top_k_slots_, AS_I32, {kStepTokens, selected})
                        .makes("lens", top_k_lens_, AS_I32, {kStepTokens}));
    if (config_.host_rows) {
      nodes.push_back(
          exchange_rows_node(graph_, kLatentCache, top_k_slots_, selected, kMlaQueryPath));
    }
  }

  void absorb_queries(std::vector<Node>& nodes) {
    nodes.push_back(Node(AS_OP_MLA_Q_ABSORB)
                        .reads("q_raw", q_raw_)
                        .weight("kv_b", "kv_b")
                        .step("positions", "positions")
                        .makes("q", q_, AS_BF16, {kStepTokens, config_.heads, AS_MLA_WIDTH}));
  }

  void attention(std::vector<Node>& nodes, bool selects) {
    const std::int64_t heads = config_.heads;
    Node node(selects ? AS_OP_SPARSE_MLA_ATTENTION : AS_OP_MLA_ATTENTION);
    node.reads("q", q_).cache("cache", kLatentCache);
    if (selects) {
      node.reads("indices", config_.host_rows ? graph_.exchange.slots : top_k_slots_)
          .reads("topk_length", top_k_lens_);
    } else {
      node.table("table", kLatentCache, "tables")
          .step("token_to_req", "token_to_req")
          .step("positions", "positions")
          .step("seq_lens", "seq_lens");
    }
    nodes.push_back(std::move(node.makes("o", o_, AS_BF16, {kStepTokens, heads, AS_MLA_LATENT})
                                  .makes("lse", lse_, AS_F32, {kStepTokens, heads})));
  }

  void output(std::vector<Node>& nodes) {
    const std::int64_t heads = config_.heads, values = config_.mla.value_dim;
    nodes.push_back(Node(AS_OP_MLA_V_UP)
                        .reads("o", o_)
                        .weight("kv_b", "kv_b")
                        .makes("y", v_, AS_BF16, {kStepTokens, heads, values}));
    nodes.push_back(Node(AS_OP_O_PROJ)
                        .reads("x", v_, {heads * values})
                        .weight("weight", "o_proj")
                        .makes("y", y_, AS_BF16, {kStepTokens, config_.hidden}));
    nodes.push_back(Node(AS_OP_RESIDUAL)
                        .reads("h", hidden_)
                        .reads("y", y_)
                        .makes("out", hidden_out_, AS_BF16, {kStepTokens, config_.hidden}));
  }

  ValueId value(const char* name) { return graph_.add_value(name); }
  const ModelConfig& config_;
  ModelGraph graph_;

  const ValueId hidden_ = value("hidden"), normed_ = value("normed"), qkv_ = value("qkv");
  const ValueId qr_ = value("qr"), kv_ = value("kv"), q_raw_ = value("q_raw"), q_ = value("q");
  const ValueId kv_row_ = value("kv_row"), index_k_ = value("index_k");
  const ValueId index_row_ = value("index_row"), index_q_raw_ = value("index_q_raw");
  const ValueId index_weights_raw_ = value("index_weights_raw");
  const ValueId index_q_row_ = value("index_q_row"), index_q_ = value("index_q");
  const ValueId index_weights_ = value("index_weights"), logits_ = value("logits");
  const ValueId top_k_ = value("top_k"), top_k_slots_ = value("top_k_slots");
  const ValueId top_k_lens_ = value("top_k_lens"), o_ = value("o"), lse_ = value("lse");
  const ValueId v_ = value("v"), y_ = value("y"), hidden_out_ = value("hidden_out");
  const ValueId last_ = value("last");
};

}  // namespace

ModelGraph mla_graph(const ModelConfig& config) { return GraphOfMla(config).make(); }

}  // namespace attnscope
