#include "engine/family/second_targets.h"

#include <fmt/format.h>

#include <utility>

#include "engine/family/mla/mla.h"

namespace attnscope {
namespace {

constexpr std::int64_t kLatentDims = 512, kRotaryDims = 64;

using MlaNames = std::vector<std::string>;

MlaNames mla_places(const std::string& inner) {
  return {"model." + inner, inner, "language_model.model." + inner, "language_model." + inner};
}

class MlaTargets {
 public:
  MlaTargets(const ModelConfig& whole, const TensorParallel& parallel,
             const std::vector<std::shared_ptr<const Weights>>& ranks)
      : c_(whole), parallel_(parallel), ranks_(ranks) {}

  std::vector<SecondTarget> list() {
    const WeightList& around = held(parallel_.rank).around;
    const std::int64_t hidden = c_.hidden, words = c_.vocabulary;
    targets_.push_back(whole_target("model.embed_tokens.weight", mla_places("embed_tokens.weight"),
                                    AS_OP_LM_HEAD, words, hidden, parallel_.rank,
                                    around["embedding"]));
    targets_.push_back(whole_target("model.norm.weight", mla_places("norm.weight"),
                                    AS_OP_FINAL_NORM, hidden, 1, parallel_.rank,
                                    around["final_norm"]));
    if (!c_.mla.tied) {
      targets_.push_back(whole_target("lm_head.weight", {"lm_head.weight"}, AS_OP_LM_HEAD, words,
                                      hidden, parallel_.rank, around["lm_head"]));
    }
    for (std::size_t i = 0; i < c_.layers.size(); ++i) layer(i);
    return std::move(targets_);
  }

 private:
  const Weights& held(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }

  // leaf: "self_attn.q_a_proj.weight"
  SecondTarget& add(const std::string& leaf, as_op_id op, std::int64_t rows, std::int64_t columns,
                    const char* tap = "weight") {
    const std::string inner = fmt::format("layers.{}.{}", layer_, leaf);
    SecondTarget& t = targets_.emplace_back();
    t.published = "model." + inner;
    t.names = mla_places(inner);
    if (columns > 1) {
      const std::string stem = inner.substr(0, inner.rfind('.'));
      for (const char* ending : {".weight_scale_inv", ".weight_scale", ".scale"}) {
        for (std::string& name : mla_places(stem + ending)) {
          t.scale_names.push_back(std::move(name));
        }
      }
    }
    t.op = op;
    t.tap = tap;
    t.layer = layer_;
    t.rows = rows;
    t.columns = columns;
    return t;
  }

  // Held whole by this rank, from a row of the weight on.
  void whole(SecondTarget& t, const Weight& w, std::int64_t first = 0) const {
    HeldPart piece{parallel_.rank, 0, t.rows, 0, t.columns, t.columns};
    piece.bf16 = w.bf16.data() + first * t.columns;
    t.pieces.push_back(piece);
  }

  // Dealt out by heads: rows of them, or columns.
  void dealt(SecondTarget& t, std::size_t i, const char* name, bool columns) const {
    const auto ranks = static_cast<std::int64_t>(ranks_.size());
    const std::int64_t rows = columns ? t.rows : t.rows / ranks;
    const std::int64_t across = columns ? t.columns / ranks : t.columns;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      HeldPart piece{static_cast<int>(rank),
                     columns ? 0 : rank * rows,
                     rows,
                     columns ? rank * across : 0,
                     across,
                     across};
      piece.bf16 = held(static_cast<int>(rank)).layers[i][name].bf16.data();
      t.pieces.push_back(piece);
    }
  }

  void layer(std::size_t i) {
    layer_ = c_.layers[i];
    const WeightList& own = held(parallel_.rank).layers[i];
    const std::int64_t hidden = c_.hidden, q_lora = c_.q_lora, heads = c_.heads;
    const std::int64_t plain = c_.mla.nope_dim, values = c_.mla.value_dim;
    const std::string p = "self_attn.";
    whole(add("input_layernorm.weight", AS_OP_ATTN_NORM, hidden, 1), own["attn_norm"]);
    whole(add(p + "q_a_proj.weight", AS_OP_Q_KV_A_PROJ, q_lora, hidden), own["q_kv_a"]);
    whole(
        add(p + "kv_a_proj_with_mqa.weight", AS_OP_Q_KV_A_PROJ, kLatentDims + kRotaryDims, hidden),
        own["q_kv_a"], q_lora);
    whole(add(p + "q_a_layernorm.weight", AS_OP_Q_KV_NORM, q_lora, 1, "q_weight"), own["q_norm"]);
    whole(add(p + "kv_a_layernorm.weight", AS_OP_Q_KV_NORM, kLatentDims, 1, "kv_weight"),
          own["kv_norm"]);
    dealt(add(p + "q_b_proj.weight", AS_OP_Q_B_PROJ, heads * (plain + kRotaryDims), q_lora), i,
          "q_b", false);
    dealt(add(p + "kv_b_proj.weight", AS_OP_MLA_Q_ABSORB, heads * (plain + values), kLatentDims,
              "kv_b"),
          i, "kv_b", false);
    dealt(add(p + "o_proj.weight", AS_OP_O_PROJ, hidden, heads * values), i, "o_proj", true);
    if (!mla_selects(c_, static_cast<int>(i))) return;
    const std::string x = p + "indexer.";
    const std::int64_t index_heads = c_.index_heads, dim = c_.index_dim;
    whole(add(x + "wq_b.weight", AS_OP_INDEXER_Q_PROJ, index_heads * dim, q_lora),
          own["indexer.wq_b"]);
    whole(add(x + "wk.weight", AS_OP_INDEX_K_PROJ, dim, hidden), own["indexer.wk"]);
    whole(add(x + "k_norm.weight", AS_OP_INDEX_KEY_INSERT, dim, 1), own["indexer.k_norm"]);
    whole(add(x + "k_norm.bias", AS_OP_INDEX_KEY_INSERT, dim, 1, "bias"), own["indexer.k_bias"]);
    whole(add(x + "weights_proj.weight", AS_OP_INDEX_WEIGHTS_PROJ, index_heads, hidden),
          own["indexer.weights_proj"]);
  }

  const ModelConfig& c_;
  const TensorParallel& parallel_;
  const std::vector<std::shared_ptr<const Weights>>& ranks_;
  int layer_ = -1;
  std::vector<SecondTarget> targets_;
};

}  // namespace

std::vector<SecondTarget> mla_second_targets(
    const ModelConfig& whole, const TensorParallel& parallel,
    const std::vector<std::shared_ptr<const Weights>>& ranks) {
  return MlaTargets(whole, parallel, ranks).list();
}

}  // namespace attnscope
