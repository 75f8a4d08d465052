#include "engine/family/second_targets.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/family/dense/dense.h"
#include "engine/family/dense/encoder_decoder.h"

namespace attnscope {
namespace {

using TensorNames = std::vector<std::string>;

// Where files have a tensor of the model proper.
TensorNames tensor_places(const std::string& inner) {
  return {"model." + inner, inner, "language_model.model." + inner, "language_model." + inner};
}

class DenseTargets {
 public:
  DenseTargets(const ModelConfig& whole, const TensorParallel& parallel,
               const std::vector<std::shared_ptr<const Weights>>& ranks)
      : c_(whole), parallel_(parallel), ranks_(ranks) {}

  std::vector<SecondTarget> list() {
    const WeightList& around = held(parallel_.rank).around;
    const std::int64_t hidden = c_.hidden, words = c_.vocabulary;
    if (is_encoder_decoder(c_)) return t5_list(around);
    whole("model.embed_tokens.weight", tensor_places("embed_tokens.weight"), AS_OP_LM_HEAD, words,
          hidden, around["embedding"]);
    whole("model.norm.weight", tensor_places("norm.weight"), AS_OP_FINAL_NORM, hidden, 1,
          around["final_norm"]);
    if (!c_.dense.tied) {
      whole("lm_head.weight", {"lm_head.weight"}, AS_OP_LM_HEAD, words, hidden, around["lm_head"]);
    }
    for (std::size_t i = 0; i < c_.layers.size(); ++i) layer(i);
    return std::move(targets_);
  }

 private:
  // Every tensor of T5 by its name; such a model runs on one rank.
  std::vector<SecondTarget> t5_list(const WeightList& around) {
    const std::int64_t hidden = c_.hidden, inner = c_.heads * std::int64_t{c_.head_dim};
    const auto one = [&](const std::string& name, as_op_id op, std::int64_t rows,
                         std::int64_t columns, const Weight& w) -> SecondTarget& {
      return whole(name, {name}, op, rows, columns, w);
    };
    one("shared.weight", AS_OP_LM_HEAD, c_.vocabulary, hidden, around["embedding"]);
    one("decoder.final_layer_norm.weight", AS_OP_FINAL_NORM, hidden, 1, around["final_norm"]);
    one("encoder.final_layer_norm.weight", AS_OP_MEMORY_NORM, hidden, 1, around["memory_norm"]);
    if (!c_.dense.tied) {
      one("lm_head.weight", AS_OP_LM_HEAD, c_.vocabulary, hidden, around["lm_head"]);
    }
    for (const bool encodes : {true, false}) {
      one(fmt::format("{}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                      encodes ? "encoder" : "decoder"),
          encodes ? AS_OP_VARLEN_ATTENTION : AS_OP_PAGED_ATTENTION, c_.dense.bias_buckets, c_.heads,
          around[encodes ? "encoder_bias" : "decoder_bias"])
          .tap = "position_bias";
    }
    int encoders = 0;
    for (const int side : c_.dense.sides) encoders += side == kSourceSide ? 1 : 0;
    for (std::size_t i = 0; i < c_.layers.size(); ++i) {
      layer_ = c_.layers[i];
      const int behind = layer_ - encoders;
      const bool cross = behind >= 0 && behind % 2 == 1;
      const std::string part =
          behind < 0 ? fmt::format("encoder.block.{}.layer.0.", layer_)
                     : fmt::format("decoder.block.{}.layer.{}.", behind / 2, cross ? 1 : 0);
      const std::string attention = part + (cross ? "EncDecAttention." : "SelfAttention.");
      const WeightList& own = held(parallel_.rank).layers[i];
      one(part + "layer_norm.weight", AS_OP_ATTN_NORM, hidden, 1, own["attn_norm"]);
      one(attention + "q.weight", AS_OP_Q_PROJ, inner, hidden, own["q_proj"]);
      one(attention + "k.weight", AS_OP_K_PROJ, inner, hidden, own["k_proj"]);
      one(attention + "v.weight", AS_OP_V_PROJ, inner, hidden, own["v_proj"]);
      one(attention + "o.weight", AS_OP_O_PROJ, hidden, inner, own["o_proj"]);
    }
    return std::move(targets_);
  }

  const Weights& held(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }

  SecondTarget& add(const std::string& published, TensorNames names, as_op_id op, std::int64_t rows,
                    std::int64_t columns) {
    SecondTarget& t = targets_.emplace_back();
    t.published = published;
    t.names = std::move(names);
    t.op = op;
    t.layer = layer_;
    t.rows = rows;
    t.columns = columns;
    return t;
  }

  SecondTarget& in_layer(const std::string& leaf, as_op_id op, std::int64_t rows,
                         std::int64_t columns) {
    const std::string inner = fmt::format("layers.{}.{}", layer_, leaf);
    return add("model." + inner, tensor_places(inner), op, rows, columns);
  }

  static void fill(HeldPart& piece, const Weight& w) {
    piece.bf16 = w.bf16.data();
    if (piece.bf16 == nullptr) piece.f32 = w.f32.data();
  }

  SecondTarget& whole(const std::string& published, TensorNames names, as_op_id op,
                      std::int64_t rows, std::int64_t columns, const Weight& w) {
    targets_.push_back(
        whole_target(published, std::move(names), op, rows, columns, parallel_.rank, w));
    targets_.back().layer = layer_;
    return targets_.back();
  }

  SecondTarget& whole_in_layer(const std::string& leaf, as_op_id op, std::int64_t n,
                               const Weight& w) {
    const std::string inner = fmt::format("layers.{}.{}", layer_, leaf);
    return whole("model." + inner, tensor_places(inner), op, n, 1, w);
  }

  // Dealt out by rows, or by columns. heads: that it has; of fewer than there are ranks each rank
  // has one, and the first ranks the first one.
  void dealt(SecondTarget& t, std::size_t i, const char* name, int heads, bool columns) const {
    const int ranks = static_cast<int>(ranks_.size());
    const int parts = std::min(heads, ranks), each = ranks / parts;
    const std::int64_t rows = columns ? t.rows : t.rows / parts;
    const std::int64_t across = columns ? t.columns / parts : t.columns;
    for (int rank = 0; rank < ranks; ++rank) {
      const int part = rank / each;
      HeldPart piece{rank,  columns ? 0 : part * rows, rows, columns ? part * across : 0, across,
                     across};
      fill(piece, held(rank).layers[i][name]);
      t.pieces.push_back(piece);
    }
  }

  void layer(std::size_t i) {
    layer_ = c_.layers[i];
    const WeightList& own = held(parallel_.rank).layers[i];
    const std::int64_t hidden = c_.hidden, dim = c_.head_dim;
    const std::int64_t q = c_.heads * dim, kv = c_.kv_heads * dim;
    whole_in_layer("input_layernorm.weight", AS_OP_ATTN_NORM, hidden, own["attn_norm"]);
    const auto projection = [&](const char* leaf, as_op_id op, std::int64_t rows,
                                std::int64_t columns, int heads) {
      SecondTarget& t = in_layer(fmt::format("self_attn.{}.weight", leaf), op, rows, columns);
      dealt(t, i, leaf, heads, op == AS_OP_O_PROJ);
    };
    projection("q_proj", AS_OP_Q_PROJ, q, hidden, c_.heads);
    const bool rows = dense_shares_with(c_, static_cast<int>(i)) < 0;
    if (rows) {
      projection("k_proj", AS_OP_K_PROJ, kv, hidden, c_.kv_heads);
      projection("v_proj", AS_OP_V_PROJ, kv, hidden, c_.kv_heads);
    }
    projection("o_proj", AS_OP_O_PROJ, hidden, q, c_.heads);
    if (c_.dense.qk_norm) {
      for (const char* leaf : {"q_norm", "k_norm"}) {
        if (leaf[0] == 'k' && !rows) continue;
        const std::string name = fmt::format("self_attn.{}.weight", leaf);
        SecondTarget& t = whole_in_layer(name, AS_OP_ROPE_KV_INSERT, dim, own[leaf]);
        t.tap = leaf[0] == 'q' ? "q_weight" : "k_weight";
      }
    }
    const std::int64_t scales = dense_scales_beside(c_);
    for (const char* leaf : {"k_scale", "v_scale"}) {
      if (!rows || scales == 0) continue;
      SecondTarget& t = whole_in_layer(fmt::format("self_attn.{}", leaf), AS_OP_ROPE_KV_INSERT,
                                       scales, own[leaf]);
      for (const char* module : {"attn", leaf[0] == 'k' ? "k_proj" : "v_proj"}) {
        for (std::string& name :
             tensor_places(fmt::format("layers.{}.self_attn.{}.{}", layer_, module, leaf))) {
          t.names.push_back(std::move(name));
        }
      }
      t.tap = leaf;
    }
    if (!c_.dense.sinks) return;
    SecondTarget& sinks = in_layer("self_attn.sinks", AS_OP_PAGED_ATTENTION, c_.heads, 1);
    sinks.tap = "sinks";
    sinks.shift = c_.sink_shift;
    for (const auto& [head, value] : c_.sinks) sinks.instead[head] = value;
    dealt(sinks, i, "sinks", c_.heads, false);
  }

  const ModelConfig& c_;
  const TensorParallel& parallel_;
  const std::vector<std::shared_ptr<const Weights>>& ranks_;
  int layer_ = -1;
  std::vector<SecondTarget> targets_;
};

}  // namespace

std::vector<SecondTarget> dense_second_targets(
    const ModelConfig& whole, const TensorParallel& parallel,
    const std::vector<std::shared_ptr<const Weights>>& ranks) {
  return DenseTargets(whole, parallel, ranks).list();
}

}  // namespace attnscope
