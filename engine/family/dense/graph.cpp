#include "engine/family/dense/dense.h"
#include "engine/family/dense/encoder_decoder.h"
#include "engine/family/step_nodes.h"

namespace attnscope {
namespace {

// Streams of a layer on a device, and rows of its drawing.
enum DensePath { kDenseMainPath, kDenseRowPath };

// Parts of a layer: what only reads its input; rotation and the caches; attention; the way back.
enum DensePhase { kDenseProjections, kDenseRows, kDenseAttention, kDenseOutput };

DensePhase dense_phase_of(as_op_id op) {
  switch (op) {
    case AS_OP_ROPE_KV_INSERT:
      return kDenseRows;
    case AS_OP_PAGED_ATTENTION:
    case AS_OP_VARLEN_ATTENTION:
      return kDenseAttention;
    case AS_OP_O_PROJ:
    case AS_OP_RESIDUAL:
      return kDenseOutput;
    default:
      return kDenseProjections;
  }
}

class GraphOfDense {
 public:
  explicit GraphOfDense(const ModelConfig& config) : config_(config) {
    graph_.branches = {"", "keys and values"};
    graph_.phases = {"projections", "queries and rows", "attention", "output"};
    graph_.hidden = hidden_;
    graph_.hidden_out = hidden_out_;
    graph_.layer_input = normed_;
    graph_.last = last_;
  }

  ModelGraph make() {
    std::vector<Node> before = {schedule_node()};
    if (!config_.dense.encoder) {
      before.push_back(block_tables_node());
      before.push_back(slot_mapping_node());
    }
    if (dense_chunk(config_) > 0) before.push_back(local_batch());
    if (is_encoder_decoder(config_)) before.push_back(cross_batch());
    graph_.before = LayerGraph(std::move(before));
    for (int i = 0; i < config_.num_layers(); ++i) graph_.layers.push_back(layer(i));
    graph_.after = after_layers(graph_, config_, config_.dense.tied ? "embedding" : "lm_head");
    return std::move(graph_);
  }

 private:
  static Node local_batch() {
    return Node(AS_OP_LOCAL_BATCH)
        .step("tables", "tables/chunked")
        .step("query_start_loc", "query_start_loc")
        .step("seq_lens", "seq_lens")
        .step("token_to_req", "token_to_req")
        .step("token_to_seq", "token_to_seq")
        .step("local_positions", "local_positions")
        .step("local_query_start_loc", "local_query_start_loc")
        .step("local_seq_lens", "local_seq_lens")
        .step("local_tables", "local_tables");
  }

  static Node cross_batch() {
    return Node(AS_OP_CROSS_BATCH)
        .step("positions", "positions")
        .step("token_to_req", "token_to_req")
        .step("source_lens", "source_lens")
        .step("slots", "slots")
        .step("source_to_req", "source_to_req")
        .step("target_to_req", "target_to_req")
        .step("source_slots", "source_slots")
        .step("target_slots", "target_slots");
  }

  LayerGraph layer(int i) {
    const std::int64_t heads = config_.heads, kv_heads = config_.kv_heads, dim = config_.head_dim;
    std::vector<Node> nodes;
    nodes.push_back(Node(AS_OP_ATTN_NORM)
                        .reads("x", hidden_)
                        .weight("weight", "attn_norm")
                        .makes("y", normed_, AS_BF16, {kStepTokens, config_.hidden}));
    nodes.push_back(projection(AS_OP_Q_PROJ, kDenseMainPath, "q_proj", normed_, q_raw_, heads));
    const DenseSide side = dense_side(config_, i);
    if (side == kCrossSide) {
      nodes.push_back(Node(AS_OP_MEMORY_NORM, {}, kDenseRowPath)
                          .reads("x", hidden_)
                          .weight("weight", "memory_norm")
                          .makes("y", memory_, AS_BF16, {kStepTokens, config_.hidden}));
    }
    if (dense_shares_with(config_, i) < 0) {
      const ValueId from = side == kCrossSide ? memory_ : normed_;
      nodes.push_back(projection(AS_OP_K_PROJ, kDenseRowPath, "k_proj", from, k_raw_, kv_heads));
      nodes.push_back(projection(AS_OP_V_PROJ, kDenseRowPath, "v_proj", from, v_, kv_heads));
    }
    if (config_.dense.encoder || side == kSourceSide) {
      nodes.push_back(packed_attention());
    } else {
      cached_attention(i, nodes);
    }
    nodes.push_back(Node(AS_OP_O_PROJ)
                        .reads("x", o_, {heads * dim})
                        .weight("weight", "o_proj")
                        .makes("y", y_, AS_BF16, {kStepTokens, config_.hidden}));
    nodes.push_back(Node(AS_OP_RESIDUAL)
                        .reads("h", hidden_)
                        .reads("y", y_)
                        .makes("out", hidden_out_, AS_BF16, {kStepTokens, config_.hidden}));
    for (Node& node : nodes) node.in_phase(dense_phase_of(node.op()));
    return LayerGraph(std::move(nodes));
  }

  // What lies between projections, with K and V in caches.
  void cached_attention(int i, std::vector<Node>& nodes) {
    const std::int64_t heads = config_.heads, kv_heads = config_.kv_heads, dim = config_.head_dim;
    const bool cross = dense_side(config_, i) == kCrossSide;
    Node insert = Node(AS_OP_ROPE_KV_INSERT).reads("q", q_raw_);
    if (config_.dense.qk_norm) insert.weight("q_weight", "q_norm");
    insert.step("positions", "positions").makes("q_out", q_, AS_BF16, {kStepTokens, heads, dim});
    // Where rows are another layer's, queries alone are turned.
    if (dense_shares_with(config_, i) < 0) {
      insert.reads("k", k_raw_).reads("v", v_);
      if (config_.dense.qk_norm) insert.weight("k_weight", "k_norm");
      if (is_encoder_decoder(config_)) {
        insert.step("slots", cross ? "source_slots" : "target_slots");
      } else {
        insert.slots("slots", kKeyCache, "slots");
      }
      insert.makes("k_row", k_row_, AS_BF16, {kStepTokens, kv_heads, dim})
          .cache("k_cache", kKeyCache)
          .cache("v_cache", kValueCache);
      if (dense_scales_beside(config_) > 0) {
        insert.weight("k_scale", "k_scale").weight("v_scale", "v_scale");
      }
      if (dense_first_tokens(config_, i) > 0) {
        insert.slots("wide_slots", kWideKeyCache, "slots")
            .cache("k_wide", kWideKeyCache)
            .cache("v_wide", kWideValueCache);
      }
    }
    nodes.push_back(std::move(insert));
    Node attention = Node(AS_OP_PAGED_ATTENTION)
                         .reads("q", q_)
                         .cache("k_cache", kKeyCache)
                         .cache("v_cache", kValueCache);
    if (dense_chunk(config_, i) > 0) {
      attention.step("table", "local_tables")
          .step("token_to_req", "token_to_seq")
          .step("positions", "local_positions")
          .step("seq_lens", "local_seq_lens");
      if (asks_places()) attention.step("places", "positions");
    } else if (is_encoder_decoder(config_)) {
      attention.table("table", kKeyCache, "tables")
          .step("token_to_req", "target_to_req")
          .step("positions", "positions")
          .step("seq_lens", cross ? "source_lens" : "seq_lens");
      if (!cross)
        attention.step("first_rows", "source_lens").weight("position_bias", "decoder_bias");
      // To a mask both sides begin with place 0.
      if (asks_places()) attention.step("query_starts", "source_lens");
      if (asks_places() && !cross) attention.step("row_starts", "source_lens");
    } else {
      attention.table("table", kKeyCache, "tables")
          .step("token_to_req", "token_to_req")
          .step("positions", "positions")
          .step("seq_lens", "seq_lens");
    }
    if (config_.dense.sinks) attention.weight("sinks", "sinks");
    if (dense_scales_beside(config_) > 0) {
      attention.weight("k_scale", "k_scale").weight("v_scale", "v_scale");
    }
    if (dense_first_tokens(config_, i) > 0) {
      attention.cache("k_wide", kWideKeyCache)
          .cache("v_wide", kWideValueCache)
          .table("wide_table", kWideKeyCache, "tables");
    }
    nodes.push_back(attended(std::move(attention)));
  }

  // A mask or a score function asks where tokens and rows stand.
  bool asks_places() const { return !config_.dense.mask.empty() || !config_.dense.score.empty(); }

  // Without caches: the requests of a step, one behind the other.
  Node packed_attention() const {
    Node attention = Node(AS_OP_VARLEN_ATTENTION)
                         .reads("q", q_raw_)
                         .reads("k", k_raw_)
                         .reads("v", v_)
                         .step("cu_seqlens", "query_start_loc");
    if (is_encoder_decoder(config_)) {
      attention.step("token_to_req", "source_to_req").weight("position_bias", "encoder_bias");
    }
    return attended(std::move(attention));
  }

  Node attended(Node attention) const {
    if (config_.dense.alibi_bias_max > 0) attention.weight("alibi_slopes", "alibi_slopes");
    attention.makes("o", o_, AS_BF16, {kStepTokens, config_.heads, config_.head_dim})
        .makes("lse", lse_, AS_F32, {kStepTokens, config_.heads});
    return attention;
  }

  Node projection(as_op_id op, DensePath branch, const char* weight, ValueId from, ValueId out,
                  std::int64_t heads) const {
    const std::int64_t dim = config_.head_dim;
    return Node(op, {}, branch)
        .reads("x", from)
        .weight("weight", weight)
        .makes("y", out, AS_BF16, {kStepTokens, heads, dim}, {heads * dim});
  }

  ValueId value(const char* name) { return graph_.add_value(name); }
  const ModelConfig& config_;
  ModelGraph graph_;

  const ValueId hidden_ = value("hidden"), normed_ = value("normed"), q_raw_ = value("q_raw");
  const ValueId k_raw_ = value("k_raw"), v_ = value("v"), q_ = value("q"), k_row_ = value("k_row");
  const ValueId o_ = value("o"), lse_ = value("lse"), y_ = value("y");
  const ValueId hidden_out_ = value("hidden_out"), last_ = value("last");
  const ValueId memory_ = value("memory");  // rows of the source as cross attention sees them
};

}  // namespace

ModelGraph dense_graph(const ModelConfig& config) { return GraphOfDense(config).make(); }

}  // namespace attnscope
