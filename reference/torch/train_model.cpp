#include "reference/torch/train_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <numeric>
#include <stdexcept>

namespace attnscope::reference {
namespace {

namespace train_model {

using at::Tensor;

constexpr std::int64_t kBlock = 256;  // tokens at a time over those before
constexpr double kNever = -std::numeric_limits<double>::infinity();

// YaRN, as published; every step in fp32, as served models have their tables.
std::vector<double> turns_of(const MlaNumbers& n) {
  const auto dim = static_cast<double>(n.rope_dim);
  const auto pair_of = [&](double times) {
    return dim * std::log(n.yarn_original_max / (2 * std::numbers::pi * times)) /
           (2 * std::log(n.rope_theta));
  };
  const double low = std::max(0.0, std::floor(pair_of(n.yarn_beta_fast)));
  double high = std::min(dim - 1, std::ceil(pair_of(n.yarn_beta_slow)));
  if (low == high) high += 0.001;
  std::vector<double> turns;
  for (std::int64_t i = 0; i < n.rope_dim / 2; ++i) {
    const auto pair = static_cast<double>(i);
    const auto plain = 1 / static_cast<float>(std::exp(pair * (2 / dim * std::log(n.rope_theta))));
    float f = plain;
    if (n.yarn_factor > 1) {
      const auto at = static_cast<float>(pair - low) / static_cast<float>(high - low);
      const float kept = 1 - std::clamp(at, 0.0F, 1.0F);
      f = plain / static_cast<float>(n.yarn_factor) * (1 - kept) + plain * kept;
    }
    turns.push_back(f);
  }
  return turns;
}

// cos and sin of positions 0 to T - 1, [T, pairs], from angles in fp32.
struct Turned {
  Tensor cos, sin;
};
Turned table(const std::vector<double>& turns, std::int64_t length, at::ScalarType type) {
  const Tensor by = at::tensor(turns).to(at::kFloat);
  const Tensor angles = at::outer(at::arange(length).to(at::kFloat), by).to(at::kDouble);
  return {angles.cos().to(at::kFloat).to(type), angles.sin().to(at::kFloat).to(type)};
}

// x [B, T, heads, rope]: dims 2i and 2i + 1 turned together.
Tensor turn_neighbours(const Tensor& x, const Turned& t) {
  const Tensor a = x.slice(-1, 0, x.size(-1), 2), b = x.slice(-1, 1, x.size(-1), 2);
  const Tensor cos = t.cos.unsqueeze(1), sin = t.sin.unsqueeze(1);
  return at::stack({a * cos - b * sin, a * sin + b * cos}, -1).flatten(-2);
}
// Dims i and i + rope / 2.
Tensor turn_halves(const Tensor& x, const Turned& t) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  const Tensor cos = t.cos.unsqueeze(1), sin = t.sin.unsqueeze(1);
  return at::cat({a * cos - b * sin, a * sin + b * cos}, -1);
}

// Tokens [begin, end) over tokens [0, end): true where one comes later than the one that looks.
Tensor later(std::int64_t begin, std::int64_t end) {
  return at::ones({end - begin, end}, at::kBool).triu(begin + 1);
}

// scores [B, n, begin + n]: marks the k best of those that each token sees, of equal ones the
// earlier.
template <class T>
void mark_best(const Tensor& scores, std::int64_t begin, std::int64_t k, Tensor& chosen) {
  const std::int64_t n = scores.size(1), across = scores.size(2), rows = scores.size(0) * n;
  const T* from = scores.data_ptr<T>();
  bool* to = chosen.data_ptr<bool>();
  std::vector<std::int32_t> order;
  for (std::int64_t r = 0; r < rows; ++r, from += across, to += across) {
    const std::int64_t sees = begin + r % n + 1, kept = std::min(k, sees);
    order.resize(static_cast<std::size_t>(sees));
    std::iota(order.begin(), order.end(), 0);
    if (kept < sees) {
      std::nth_element(order.begin(), order.begin() + kept, order.end(),
                       [&](std::int32_t a, std::int32_t b) {
                         return from[a] != from[b] ? from[a] > from[b] : a < b;
                       });
    }
    for (std::int64_t i = 0; i < kept; ++i) to[order[static_cast<std::size_t>(i)]] = true;
  }
}

Tensor best_of(const Tensor& scores, std::int64_t begin, std::int64_t k) {
  const Tensor dense = scores.detach().contiguous();
  Tensor chosen = at::zeros(dense.sizes(), at::kBool);
  if (dense.scalar_type() == at::kDouble) {
    mark_best<double>(dense, begin, k, chosen);
  } else {
    mark_best<float>(dense, begin, k, chosen);
  }
  return chosen;
}

}  // namespace train_model

}  // namespace

using at::Tensor;
namespace tm = train_model;

TrainModel::TrainModel(const MlaNumbers& numbers, const TensorSource& source, at::ScalarType type)
    : n_(numbers), frequencies_(tm::turns_of(numbers)) {
  read(source, type);
}

bool TrainModel::of_indexer(const std::string& name) {
  return name.find(".indexer.") != std::string::npos;
}

std::string TrainModel::prefix(std::size_t layer) const {
  return "model.layers." + std::to_string(n_.layers[layer]) + ".";
}

Tensor TrainModel::rms_norm(const Tensor& x, const std::string& name) const {
  return x * (x.square().mean(-1, true) + n_.norm_eps).rsqrt() * weight(name);
}

Tensor TrainModel::forward(const Tensor& ids, Attends attends, bool choose,
                           std::vector<LayerSeen>* seen) const {
  Tensor h = weight("model.embed_tokens.weight").index_select(0, ids.flatten());
  for (std::size_t i = 0; i < n_.layers.size(); ++i) {
    const Tensor x = rms_norm(h, prefix(i) + "input_layernorm.weight");
    h = h + attention(i, x, ids.size(0), attends, choose, seen);
  }
  return rms_norm(h, "model.norm.weight");
}

Tensor TrainModel::logits(const Tensor& hidden) const {
  const char* head = n_.tied ? "model.embed_tokens.weight" : "lm_head.weight";
  return at::mm(hidden, weight(head).t());
}

Tensor TrainModel::losses(const Tensor& hidden, const Tensor& targets) const {
  const Tensor logs = logits(hidden).log_softmax(-1);
  return -logs.gather(1, targets.reshape({-1, 1})).view(targets.sizes());
}

// x [B * T, hidden], normalised.
Tensor TrainModel::attention(std::size_t i, const Tensor& x, std::int64_t B, Attends attends,
                             bool choose, std::vector<LayerSeen>* seen) const {
  const std::string p = prefix(i) + "self_attn.";
  const std::int64_t T = x.size(0) / B, H = n_.heads, N = n_.nope_dim, R = n_.rope_dim;
  const tm::Turned turned = tm::table(frequencies_, T, x.scalar_type());
  const Tensor qr =
      rms_norm(at::mm(x, weight(p + "q_a_proj.weight").t()), p + "q_a_layernorm.weight");
  const Tensor q = at::mm(qr, weight(p + "q_b_proj.weight").t()).view({B, T, H, N + R});
  const Tensor query =
      at::cat({q.narrow(3, 0, N), tm::turn_neighbours(q.narrow(3, N, R), turned)}, 3);
  const Tensor row = at::mm(x, weight(p + "kv_a_proj_with_mqa.weight").t());
  const Tensor latent = rms_norm(row.narrow(1, 0, n_.kv_lora), p + "kv_a_layernorm.weight");
  const Tensor shared =
      tm::turn_neighbours(row.narrow(1, n_.kv_lora, R).reshape({B, T, 1, R}), turned);
  const Tensor up =
      at::mm(latent, weight(p + "kv_b_proj.weight").t()).view({B, T, H, N + n_.value_dim});
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
  for (std::int64_t begin = 0; begin < T; begin += tm::kBlock) {
    const std::int64_t end = std::min(T, begin + tm::kBlock);
    BlockSeen& block = of.emplace_back();
    block.begin = begin;
    Tensor unseen = tm::later(begin, end);
    if (index.query.defined()) {
      block.scores = scores_of(index, begin, end);
      block.chosen = tm::best_of(block.scores, begin, n_.index_topk);
      if (sparse) unseen = block.chosen.logical_not().unsqueeze(1);
    }
    Tensor l = at::matmul(queries.slice(2, begin, end), keys.slice(3, 0, end));
    const Tensor weights = l.masked_fill_(unseen, tm::kNever).softmax(-1);  // [B, H, n, end]
    out.push_back(at::matmul(weights, values.slice(2, 0, end)).transpose(1, 2));
    if (!selects || seen == nullptr) continue;
    const Tensor all = weights.detach().sum(1);
    block.attention = all / all.sum(-1, true);
  }
  if (selects && seen != nullptr) seen->push_back(std::move(of));
  const Tensor rows = at::cat(out, 1).reshape({B * T, H * n_.value_dim});
  return at::mm(rows, weight(p + "o_proj.weight").t());
}

TrainModel::IndexParts TrainModel::index_parts(std::size_t i, const Tensor& x, const Tensor& qr,
                                               std::int64_t B) const {
  const std::string p = prefix(i) + "self_attn.indexer.";
  const std::int64_t T = x.size(0) / B, J = n_.index_heads, D = n_.index_dim, R = n_.rope_dim;
  const tm::Turned turned = tm::table(frequencies_, T, x.scalar_type());
  const auto turn = [&](const Tensor& of) {
    return at::cat({tm::turn_halves(of.narrow(3, 0, R), turned), of.narrow(3, R, D - R)}, 3);
  };
  Tensor k = at::mm(x, weight(p + "wk.weight").t());
  k = k - k.mean(-1, true);
  k = k * (k.square().mean(-1, true) + n_.index_norm_eps).rsqrt() * weight(p + "k_norm.weight") +
      weight(p + "k_norm.bias");
  IndexParts parts;
  parts.query = turn(at::mm(qr, weight(p + "wq_b.weight").t()).view({B, T, J, D}));
  parts.keys = turn(k.view({B, T, 1, D})).squeeze(2).transpose(1, 2);
  parts.weights = at::mm(x, weight(p + "weights_proj.weight").t()).view({B, T, J}) *
                  (1 / std::sqrt(static_cast<double>(J) * static_cast<double>(D)));
  return parts;
}

// The sum over heads of w relu(q . k), of tokens [begin, end) with those before. The Hadamard
// transform of both changes no product.
Tensor TrainModel::scores_of(const IndexParts& parts, std::int64_t begin, std::int64_t end) {
  const Tensor query = parts.query.slice(1, begin, end), keys = parts.keys.slice(2, 0, end);
  const Tensor weights = parts.weights.slice(1, begin, end).unsqueeze(-1);
  Tensor sum;
  for (std::int64_t j = 0; j < query.size(2); ++j) {
    const Tensor hits = at::bmm(query.select(2, j), keys).relu_() * weights.select(2, j);
    sum = sum.defined() ? sum + hits : hits;
  }
  return sum;
}

Tensor TrainModel::divergence(const LayerSeen& seen, bool chosen) const {
  std::vector<Tensor> all;
  for (const BlockSeen& block : seen) {
    const Tensor out = chosen ? block.chosen.logical_not()
                              : tm::later(block.begin, block.begin + block.scores.size(1));
    const Tensor kept = block.attention.masked_fill(out, 0);
    const Tensor p = kept / kept.sum(-1, true);
    const Tensor logs =
        block.scores.masked_fill(out, tm::kNever).log_softmax(-1).masked_fill(out, 0);
    all.push_back((at::xlogy(p, p) - p * logs).sum(-1));
  }
  return at::cat(all, 1);
}

void TrainModel::read(const TensorSource& source, at::ScalarType type) {
  const auto add = [&](const std::string& name, at::IntArrayRef shape) {
    const TensorEntry* entry = source(name);
    if (entry == nullptr) throw std::invalid_argument(name + ": the model has no such tensor");
    at::ScalarType stored = at::kByte;
    if (entry->type == ElementType::kBf16) stored = at::kBFloat16;
    if (entry->type == ElementType::kF32) stored = at::kFloat;
    if (entry->type == ElementType::kF64) stored = at::kDouble;
    if (stored == at::kByte) throw std::invalid_argument(name + ": not BF16, F32 or F64");
    if (at::IntArrayRef(entry->shape) != shape) {
      throw std::invalid_argument(name + ": a shape that is not the model's");
    }
    Tensor t = at::empty(shape, stored);
    std::memcpy(t.data_ptr(), entry->data, entry->bytes);
    weights_[name] = t.to(type).clone();
  };
  const std::int64_t H = n_.heads, N = n_.nope_dim, R = n_.rope_dim, V = n_.value_dim;
  add("model.embed_tokens.weight", {kModelTokens, n_.hidden});
  add("model.norm.weight", {n_.hidden});
  if (!n_.tied) add("lm_head.weight", {kModelTokens, n_.hidden});
  for (std::size_t i = 0; i < n_.layers.size(); ++i) {
    const std::string p = prefix(i) + "self_attn.", x = p + "indexer.";
    add(prefix(i) + "input_layernorm.weight", {n_.hidden});
    add(p + "q_a_proj.weight", {n_.q_lora, n_.hidden});
    add(p + "q_a_layernorm.weight", {n_.q_lora});
    add(p + "q_b_proj.weight", {H * (N + R), n_.q_lora});
    add(p + "kv_a_proj_with_mqa.weight", {n_.kv_lora + R, n_.hidden});
    add(p + "kv_a_layernorm.weight", {n_.kv_lora});
    add(p + "kv_b_proj.weight", {H * (N + V), n_.kv_lora});
    add(p + "o_proj.weight", {n_.hidden, H * V});
    if (!n_.selects[i]) continue;
    add(x + "wq_b.weight", {n_.index_heads * n_.index_dim, n_.q_lora});
    add(x + "wk.weight", {n_.index_dim, n_.hidden});
    add(x + "k_norm.weight", {n_.index_dim});
    add(x + "k_norm.bias", {n_.index_dim});
    add(x + "weights_proj.weight", {n_.index_heads, n_.hidden});
  }
}

}  // namespace attnscope::reference
