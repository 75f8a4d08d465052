#include "reference/torch/train_mla.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/torch/train_parts.h"

namespace attnscope::reference {
namespace {

namespace train_mla {

constexpr std::int64_t kBlock = 256;  // tokens at a time over those before
constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace train_mla

}  // namespace

using at::Tensor;

TrainMla::TrainMla(const MlaNumbers& n, const TensorSource& source, at::ScalarType type)
    : TrainModel(n.index_topk, 1, n.norm_eps),
      n_(n),
      turns_(turns_of({n.rope_dim, n.rope_theta, n.yarn_factor, n.yarn_original_max,
                       n.yarn_beta_fast, n.yarn_beta_slow})) {
  read(source, type);
}

std::string TrainMla::prefix(std::size_t layer) const {
  return "model.layers." + std::to_string(n_.layers[layer]) + ".";
}

Tensor TrainMla::forward(const Tensor& ids, Attends attends, bool choose,
                         std::vector<LayerSeen>* seen) const {
  Tensor h = weight("model.embed_tokens.weight").index_select(0, ids.flatten());
  for (std::size_t i = 0; i < n_.layers.size(); ++i) {
    const Tensor x = rms_norm(h, prefix(i) + "input_layernorm.weight");
    h = h + attention(i, x, ids.size(0), attends, choose, seen);
  }
  return rms_norm(h, "model.norm.weight");
}

Tensor TrainMla::logits(const Tensor& hidden) const {
  return linear(hidden, n_.tied ? "model.embed_tokens.weight" : "lm_head.weight");
}

// x [B * T, hidden], normalised.
Tensor TrainMla::attention(std::size_t i, const Tensor& x, std::int64_t B, Attends attends,
                           bool choose, std::vector<LayerSeen>* seen) const {
  const std::string p = prefix(i) + "self_attn.";
  const std::int64_t T = x.size(0) / B, H = n_.heads, N = n_.nope_dim, R = n_.rope_dim;
  const Turned turns = turned(turns_, T, 1, x.options());
  const Tensor qr = rms_norm(linear(x, p + "q_a_proj.weight"), p + "q_a_layernorm.weight");
  const Tensor q = linear(qr, p + "q_b_proj.weight").view({B, T, H, N + R});
  const Tensor query = at::cat({q.narrow(3, 0, N), turn_neighbours(q.narrow(3, N, R), turns)}, 3);
  const Tensor row = linear(x, p + "kv_a_proj_with_mqa.weight");
  const Tensor latent = rms_norm(row.narrow(1, 0, n_.kv_lora), p + "kv_a_layernorm.weight");
  const Tensor shared = turn_neighbours(row.narrow(1, n_.kv_lora, R).reshape({B, T, 1, R}), turns);
  const Tensor up = linear(latent, p + "kv_b_proj.weight").view({B, T, H, N + n_.value_dim});
  const Tensor key = at::cat({up.narrow(3, 0, N), shared.expand({B, T, H, R})}, 3);
  const Tensor value = up.narrow(3, N, n_.value_dim);

  const bool selects = n_.selects[i];
  const bool sparse = selects && attends == Attends::kChosen;
  IndexParts index;
  if (sparse || (selects && choose)) index = index_parts(i, x.detach(), qr.detach(), B);
  const Tensor queries = (query * n_.scale).transpose(1, 2);  // [B, H, T, N + R]
  const Tensor keys = key.permute({0, 2, 3, 1}), values = value.transpose(1, 2);
  LayerSeen of;
  std::vector<Tensor> out;
  for (std::int64_t begin = 0; begin < T; begin += train_mla::kBlock) {
    const std::int64_t end = std::min(T, begin + train_mla::kBlock);
    BlockSeen& block = of.emplace_back();
    block.begin = begin;
    Tensor unseen = unfinished(begin, end, 1, x.device());
    if (index.query.defined()) {
      block.scores = indexer_scores(index.query.slice(1, begin, end), index.keys.slice(2, 0, end),
                                    index.weights.slice(1, begin, end));
      block.chosen = best_of(block.scores, begin, 1, n_.index_topk);
      if (sparse) unseen = block.chosen.logical_not().unsqueeze(1);
    }
    Tensor l = at::matmul(queries.slice(2, begin, end), keys.slice(3, 0, end));
    const Tensor weights = l.masked_fill_(unseen, train_mla::kNever).softmax(-1);  // [B, H, n, end]
    out.push_back(at::matmul(weights, values.slice(2, 0, end)).transpose(1, 2));
    if (selects && seen != nullptr) block.attention = share_of_entries(weights, 1);
  }
  if (selects && seen != nullptr) seen->push_back(std::move(of));
  const Tensor rows = at::cat(out, 1).reshape({B * T, H * n_.value_dim});
  return linear(rows, p + "o_proj.weight");
}

// The Hadamard transform of queries and keys changes no score.
TrainMla::IndexParts TrainMla::index_parts(std::size_t i, const Tensor& x, const Tensor& qr,
                                           std::int64_t B) const {
  const std::string p = prefix(i) + "self_attn.indexer.";
  const std::int64_t T = x.size(0) / B, J = n_.index_heads, D = n_.index_dim, R = n_.rope_dim;
  const Turned turns = turned(turns_, T, 1, x.options());
  const auto turn = [&](const Tensor& of) {
    return at::cat({turn_halves(of.narrow(3, 0, R), turns), of.narrow(3, R, D - R)}, 3);
  };
  Tensor k = linear(x, p + "wk.weight");
  k = k - k.mean(-1, true);
  k = k * (k.square().mean(-1, true) + n_.index_norm_eps).rsqrt() * weight(p + "k_norm.weight") +
      weight(p + "k_norm.bias");
  IndexParts parts;
  parts.query = turn(linear(qr, p + "wq_b.weight").view({B, T, J, D}));
  parts.keys = turn(k.view({B, T, 1, D})).squeeze(2).transpose(1, 2);
  parts.weights = linear(x, p + "weights_proj.weight").view({B, T, J}) *
                  (1 / std::sqrt(static_cast<double>(J) * static_cast<double>(D)));
  return parts;
}

void TrainMla::read(const TensorSource& source, at::ScalarType type) {
  const auto tensor = [&](const std::string& name, at::IntArrayRef shape) {
    add(source, type, name, shape);
  };
  const std::int64_t H = n_.heads, N = n_.nope_dim, R = n_.rope_dim, V = n_.value_dim;
  tensor("model.embed_tokens.weight", {kModelTokens, n_.hidden});
  tensor("model.norm.weight", {n_.hidden});
  if (!n_.tied) tensor("lm_head.weight", {kModelTokens, n_.hidden});
  for (std::size_t i = 0; i < n_.layers.size(); ++i) {
    const std::string p = prefix(i) + "self_attn.", x = p + "indexer.";
    tensor(prefix(i) + "input_layernorm.weight", {n_.hidden});
    tensor(p + "q_a_proj.weight", {n_.q_lora, n_.hidden});
    tensor(p + "q_a_layernorm.weight", {n_.q_lora});
    tensor(p + "q_b_proj.weight", {H * (N + R), n_.q_lora});
    tensor(p + "kv_a_proj_with_mqa.weight", {n_.kv_lora + R, n_.hidden});
    tensor(p + "kv_a_layernorm.weight", {n_.kv_lora});
    tensor(p + "kv_b_proj.weight", {H * (N + V), n_.kv_lora});
    tensor(p + "o_proj.weight", {n_.hidden, H * V});
    if (!n_.selects[i]) continue;
    tensor(x + "wq_b.weight", {n_.index_heads * n_.index_dim, n_.q_lora});
    tensor(x + "wk.weight", {n_.index_dim, n_.hidden});
    tensor(x + "k_norm.weight", {n_.index_dim});
    tensor(x + "k_norm.bias", {n_.index_dim});
    tensor(x + "weights_proj.weight", {n_.index_heads, n_.hidden});
  }
}

}  // namespace attnscope::reference
