#include "engine/family/second_targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "engine/family/deepseek_v4/deepseek_v4.h"

namespace attnscope {
namespace {

constexpr std::int64_t kScaleSide = 128;  // of a block with a scale of its own

// Where a published tensor may be found: the names that files give it.

struct Alias {
  const char *published, *others;  // others: separated by blanks
};

constexpr Alias kLeaves[] = {
    {"wq_a", "wq_a q_a_proj"}, {"q_norm", "q_norm q_a_norm"},    {"wq_b", "wq_b q_b_proj"},
    {"wkv", "wkv kv_proj"},    {"kv_norm", "kv_norm norm"},      {"wo_a", "wo_a o_a_proj"},
    {"wo_b", "wo_b o_b_proj"}, {"attn_sink", "attn_sink sinks"}, {"wgate", "wgate gate_proj"},
    {"norm", "norm kv_norm"},  {"ape", "ape position_bias"},     {"weights_proj", "weights_proj"},
};

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == ' ') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

// layer: "layers.2" or "mtp.0"; path: "", "compressor.", "indexer." or "indexer.compressor."; leaf:
// "wq_a"; ends: what may follow.
std::vector<std::string> names_in_attention(const std::string& layer, const std::string& path,
                                            const std::string& leaf,
                                            const std::vector<std::string>& ends) {
  std::vector<std::string> paths = {path};
  if (path == "indexer.")
    paths = split_words(
        "indexer. compressor.indexer. indexer.scorer. "
        "compressor.indexer.scorer.");
  if (path == "indexer.compressor.") paths = split_words("indexer.compressor. compressor.indexer.");
  const auto alias =
      std::ranges::find_if(kLeaves, [&](const Alias& a) { return leaf == a.published; });
  std::vector<std::string> names;
  for (const char* model : {"", "model."}) {
    for (const char* attention : {"attn.", "self_attn."}) {
      for (const std::string& inner : paths) {
        for (const std::string& other : split_words(alias->others)) {
          for (const std::string& end : ends) {
            names.push_back(
                fmt::format("{}{}.{}{}{}{}", model, layer, attention, inner, other, end));
          }
        }
      }
    }
  }
  return names;
}

// All tensors of the layers that run.
class TargetList {
 public:
  TargetList(const ModelConfig& whole, const TensorParallel& parallel,
             const std::vector<std::shared_ptr<const Weights>>& ranks)
      : c_(whole), parallel_(parallel), ranks_(ranks) {}

  std::vector<SecondTarget> list() {
    const Weights& own = mine();
    targets_.push_back(whole_target(
        "embed.weight",
        {"embed.weight", "model.embed.weight", "embed_tokens.weight", "model.embed_tokens.weight"},
        AS_OP_LM_HEAD, c_.vocabulary, c_.hidden, parallel_.rank, own.around["embedding"]));
    targets_.push_back(whole_target("norm.weight", {"norm.weight", "model.norm.weight"},
                                    AS_OP_FINAL_NORM, c_.hidden, 1, parallel_.rank,
                                    own.around["final_norm"]));
    for (std::size_t i = 0; i < own.layers.size(); ++i) layer(i);
    return std::move(targets_);
  }

 private:
  const Weights& mine() const { return *ranks_[static_cast<std::size_t>(parallel_.rank)]; }

  SecondTarget& add(const std::string& published, as_op_id op, std::vector<std::string> names,
                    std::int64_t rows, std::int64_t columns) {
    SecondTarget& t = targets_.emplace_back();
    t.published = published;
    t.names = std::move(names);
    t.op = op;
    t.layer = layer_;
    t.rows = rows;
    t.columns = columns;
    return t;
  }

  // Of attention in this layer; leaf as published.
  SecondTarget& attention(const std::string& path, const std::string& leaf, as_op_id op,
                          std::int64_t rows, std::int64_t columns) {
    const bool ends = leaf != "attn_sink" && leaf != "ape";
    SecondTarget& t =
        add(fmt::format("{}.attn.{}{}{}", named_, path, leaf, ends ? ".weight" : ""), op,
            names_in_attention(named_, path, leaf, {ends ? ".weight" : ""}), rows, columns);
    if (ends) {
      t.scale_names = names_in_attention(
          named_, path, leaf, {".scale", ".weight_scale_inv", ".weight_scale", ".scale_inv"});
    }
    return t;
  }

  // Rows [first, first + rows) of a matrix in bf16 or FP8 are rows [row, ..) and columns
  // [column, ..) of the tensor.
  static void part(SecondTarget& t, int rank, const Weight& held, std::int64_t first,
                   std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    HeldPart piece{rank, row, rows, column, columns, columns};
    if (held.fp8.codes.size() > 0) {
      const std::int64_t across = (columns + kScaleSide - 1) / kScaleSide;
      piece.codes = held.fp8.codes.data() + first * columns;
      piece.scales = held.fp8.scales.data() + first / std::min(kScaleSide, rows) * across;
      piece.scale_pitch = across;
    } else {
      piece.bf16 = held.bf16.data() + first * columns;
    }
    t.pieces.push_back(piece);
  }

  // Whether the switch has this projection in FP8, as a whole.
  bool in_fp8(std::int64_t rows, std::int64_t columns) const {
    return c_.switches.fp8_projections && rows % kScaleSide == 0 && columns % kScaleSide == 0;
  }

  // held: where its weights are.
  void compressor(const std::string& path, const WeightList& w, const std::string& held, int ratio,
                  std::int64_t dim, as_op_id proj, as_op_id state, as_op_id insert) {
    const std::int64_t width = (ratio == 4 ? 2 : 1) * dim;
    for (const char* leaf : {"wkv", "wgate"}) {
      SecondTarget& t = attention(path, leaf, proj, width, c_.hidden);
      HeldPart piece{parallel_.rank, 0, width, 0, c_.hidden, c_.hidden};
      piece.bf16 = w[held + "kv_gate"].bf16.data() + (leaf[1] == 'g' ? width * c_.hidden : 0);
      t.pieces.push_back(piece);
    }
    SecondTarget& ape = attention(path, "ape", state, ratio, width);
    ape.tap = "ape";
    ape.pieces.push_back(
        {parallel_.rank, 0, ratio, 0, width, width, nullptr, w[held + "ape"].f32.data()});
    SecondTarget& norm = attention(path, "norm", insert, dim, 1);
    norm.pieces.push_back({parallel_.rank, 0, dim, 0, 1, 1, w[held + "norm"].bf16.data()});
  }

  // What the draft layer has beside a layer's attention.
  void draft(const WeightList& w) {
    for (const auto& [leaf, held, op, tap] :
         {std::tuple("enorm", "draft.enorm", AS_OP_DRAFT_NORM, "e_weight"),
          std::tuple("hnorm", "draft.hnorm", AS_OP_DRAFT_NORM, "h_weight"),
          std::tuple("norm", "draft.norm", AS_OP_FINAL_NORM, "weight")}) {
      SecondTarget& t = draft_tensor(leaf, op, 1);
      t.tap = tap;
      t.pieces.push_back({parallel_.rank, 0, c_.hidden, 0, 1, 1, w[held].bf16.data()});
    }
    for (const auto& [leaf, held, op] :
         {std::tuple("e_proj", "draft.e_proj", AS_OP_DRAFT_E_PROJ),
          std::tuple("h_proj", "draft.h_proj", AS_OP_DRAFT_H_PROJ)}) {
      SecondTarget& t = draft_tensor(leaf, op, c_.hidden);
      t.fp8 = in_fp8(c_.hidden, c_.hidden);
      for (const char* end : {".scale", ".weight_scale_inv", ".weight_scale", ".scale_inv"}) {
        for (const char* model : {"", "model."}) {
          t.scale_names.push_back(fmt::format("{}{}.{}{}", model, named_, leaf, end));
        }
      }
      part(t, parallel_.rank, w[held], 0, 0, c_.hidden, 0, c_.hidden);
    }
  }
  SecondTarget& draft_tensor(const char* leaf, as_op_id op, std::int64_t columns) {
    const std::string name = fmt::format("{}.{}.weight", named_, leaf);
    return add(name, op, {name, "model." + name}, c_.hidden, columns);
  }

  void layer(std::size_t i) {
    const WeightList& w = mine().layers[i];
    layer_ = c_.layers[i];
    const bool drafts = i + 1 == mine().layers.size() && c_.draft_layers > 0;
    named_ = drafts ? "mtp.0" : fmt::format("layers.{}", layer_);
    if (drafts) draft(w);
    const std::int64_t hidden = c_.hidden, q_lora = c_.q_lora, size = parallel_.size;
    const std::int64_t group_in = std::int64_t{c_.heads_per_group()} * c_.head_dim;
    const std::int64_t out = std::int64_t{c_.o_groups} * c_.o_lora;
    std::vector<std::string> names;
    for (const char* model : {"", "model."}) {
      for (const char* leaf : {"attn_norm", "input_layernorm"}) {
        names.push_back(fmt::format("{}{}.{}.weight", model, named_, leaf));
      }
    }
    targets_.push_back(whole_target(fmt::format("{}.attn_norm.weight", named_), names,
                                    AS_OP_ATTN_NORM, hidden, 1, parallel_.rank, w["attn_norm"]));
    targets_.back().layer = layer_;
    const bool a_in_fp8 = in_fp8(q_lora + c_.head_dim, hidden);
    SecondTarget& wq_a = attention("", "wq_a", AS_OP_Q_KV_A_PROJ, q_lora, hidden);
    wq_a.fp8 = a_in_fp8;
    part(wq_a, parallel_.rank, w["wq_kv_a"], 0, 0, q_lora, 0, hidden);
    SecondTarget& wkv = attention("", "wkv", AS_OP_Q_KV_A_PROJ, c_.head_dim, hidden);
    wkv.fp8 = a_in_fp8;
    part(wkv, parallel_.rank, w["wq_kv_a"], q_lora, 0, c_.head_dim, 0, hidden);
    for (const auto& [leaf, data, n] :
         {std::tuple("q_norm", w["q_norm"].bf16.data(), q_lora),
          std::tuple("kv_norm", w["kv_norm"].bf16.data(), std::int64_t{c_.head_dim})}) {
      SecondTarget& t = attention("", leaf, AS_OP_Q_KV_NORM, n, 1);
      t.tap = leaf[0] == 'q' ? "q_weight" : "kv_weight";
      t.pieces.push_back({parallel_.rank, 0, n, 0, 1, 1, data});
    }
    const std::int64_t q_rows = std::int64_t{c_.heads} * c_.head_dim;
    SecondTarget& wq_b = attention("", "wq_b", AS_OP_Q_B_PROJ, q_rows, q_lora);
    wq_b.fp8 = in_fp8(q_rows, q_lora);
    each_rank(i, [&](int rank, const WeightList& l) {
      part(wq_b, rank, l["wq_b"], 0, rank * q_rows / size, q_rows / size, 0, q_lora);
    });
    SecondTarget& sinks = attention("", "attn_sink", AS_OP_SPARSE_ATTENTION, c_.heads, 1);
    sinks.tap = "sinks";
    sinks.shift = c_.sink_shift;
    for (const auto& [head, value] : c_.sinks) sinks.instead[head] = value;
    each_rank(i, [&](int rank, const WeightList& l) {
      const std::int64_t heads = c_.heads / size;
      sinks.pieces.push_back({rank, rank * heads, heads, 0, 1, 1, nullptr, l["sinks"].f32.data()});
    });
    SecondTarget& wo_a = attention("", "wo_a", AS_OP_WO_A, out, group_in);
    // Groups in codes have scales of their own.
    wo_a.fp8 = c_.switches.fp8_projections && !c_.switches.bf16_wo_a &&
               group_in % kScaleSide == 0 &&
               (c_.o_lora % kScaleSide == 0 || kScaleSide % c_.o_lora == 0);
    const std::int64_t rows = wo_a.fp8 ? c_.o_lora : out / size;
    each_rank(i, [&](int rank, const WeightList& l) {
      for (std::int64_t first = 0; first < out / size; first += rows) {
        part(wo_a, rank, l["wo_a"], first, rank * out / size + first, rows, 0, group_in);
      }
    });
    SecondTarget& wo_b = attention("", "wo_b", AS_OP_WO_B, hidden, out);
    wo_b.fp8 = in_fp8(hidden, out);
    each_rank(i, [&](int rank, const WeightList& l) {
      part(wo_b, rank, l["wo_b"], 0, 0, hidden, rank * out / size, out / size);
    });
    const int ratio = c_.ratio(static_cast<int>(i));
    if (ratio == 0) return;
    compressor("compressor.", w, "compressor.", ratio, c_.head_dim, AS_OP_COMPRESSOR_PROJ,
               AS_OP_COMPRESSOR_STATE, AS_OP_COMPRESS_INSERT);
    if (ratio != 4) return;
    compressor("indexer.compressor.", w, "indexer.", ratio, c_.index_dim,
               AS_OP_INDEXER_COMPRESSOR_PROJ, AS_OP_INDEXER_COMPRESSOR_STATE,
               AS_OP_INDEXER_COMPRESS_INSERT);
    const std::int64_t index_rows = std::int64_t{c_.index_heads} * c_.index_dim;
    SecondTarget& index_q = attention("indexer.", "wq_b", AS_OP_INDEXER_Q_PROJ, index_rows, q_lora);
    index_q.fp8 = in_fp8(index_rows, q_lora);
    part(index_q, parallel_.rank, w["indexer.wq_b"], 0, 0, index_rows, 0, q_lora);
    SecondTarget& weights =
        attention("indexer.", "weights_proj", AS_OP_INDEXER_WEIGHTS_PROJ, c_.index_heads, hidden);
    weights.pieces.push_back({parallel_.rank, 0, c_.index_heads, 0, hidden, hidden,
                              w["indexer.weights_proj"].bf16.data()});
  }

  template <class F>
  void each_rank(std::size_t layer, const F& f) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      f(static_cast<int>(rank), ranks_[rank]->layers[layer]);
    }
  }

  const ModelConfig& c_;
  const TensorParallel& parallel_;
  const std::vector<std::shared_ptr<const Weights>>& ranks_;
  int layer_ = -1;
  std::string named_;  // its name in files
  std::vector<SecondTarget> targets_;
};

}  // namespace

std::vector<SecondTarget> deepseek_v4_second_targets(
    const ModelConfig& whole, const TensorParallel& parallel,
    const std::vector<std::shared_ptr<const Weights>>& ranks) {
  return TargetList(whole, parallel, ranks).list();
}

}  // namespace attnscope
