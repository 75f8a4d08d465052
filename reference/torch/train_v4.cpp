#include "reference/torch/train_v4.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace attnscope::reference {
namespace {

namespace train_v4 {

constexpr std::int64_t kBlock = 64;    // tokens at a time over their windows and entries
constexpr std::int64_t kSelected = 4;  // tokens of entries that an indexer selects among
constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace train_v4

}  // namespace

using at::Tensor;

TrainV4::TrainV4(const ModelNumbers& n, const TensorSource& source, at::ScalarType type)
    : TrainModel(n.index_topk, train_v4::kSelected, n.norm_eps), n_(n) {
  if (n.draft_layers != 0) throw std::invalid_argument("layers that draft are not trained");
  if (n.keep_fp8_values || n.keep_fp8_output || !n.fp32_frequencies) {
    throw std::invalid_argument("FP8 projections and float64 frequencies are not trained");
  }
  if (n.sink_shift != 0 || !n.sinks.empty()) {
    throw std::invalid_argument("sinks other than the model's own are not trained");
  }
  read(source, type);
}

std::string TrainV4::prefix(std::size_t layer) const {
  return "layers." + std::to_string(n_.layers[layer]) + ".";
}
std::int64_t TrainV4::ratio(std::size_t layer) const {
  return n_.compress_ratios[static_cast<std::size_t>(n_.layers[layer])];
}

// Layers with entries turn by another base than those without, and by YaRN.
Turned TrainV4::turns_at(std::size_t layer, std::int64_t count, std::int64_t stride,
                         const Tensor& like) const {
  const bool compresses = ratio(layer) > 0;
  TrainRotary rotary{n_.rope_dim, compresses ? n_.compress_rope_theta : n_.rope_theta};
  if (compresses || n_.yarn_in_every_layer) rotary.factor = n_.yarn_factor;
  rotary.original_max = n_.yarn_original_max;
  rotary.beta_fast = n_.yarn_beta_fast;
  rotary.beta_slow = n_.yarn_beta_slow;
  return turned(turns_of(rotary), count, stride, like.options());
}

Tensor TrainV4::rotate(const Tensor& x, const Turned& turns) const {
  const std::int64_t rest = x.size(3) - n_.rope_dim;
  return at::cat({x.narrow(3, 0, rest), turn_neighbours(x.narrow(3, rest, n_.rope_dim), turns)}, 3);
}

Tensor TrainV4::forward(const Tensor& ids, Attends attends, bool choose,
                        std::vector<LayerSeen>* seen) const {
  Tensor h = weight("embed.weight").index_select(0, ids.flatten());
  for (std::size_t i = 0; i < n_.layers.size(); ++i) {
    const Tensor x = rms_norm(h, prefix(i) + "attn_norm.weight");
    h = h + attention(i, x, ids.size(0), attends, choose, seen);
  }
  return rms_norm(h, "norm.weight");
}

Tensor TrainV4::logits(const Tensor& hidden) const { return linear(hidden, "embed.weight"); }

// x [B * T, hidden], normalised. What has all heads is made for some tokens at a time: as a whole
// it would leave the processor's caches.
Tensor TrainV4::attention(std::size_t i, const Tensor& x, std::int64_t B, Attends attends,
                          bool choose, std::vector<LayerSeen>* seen) const {
  const std::string p = prefix(i) + "attn.";
  const std::int64_t T = x.size(0) / B, H = n_.heads, D = n_.head_dim, r = ratio(i);
  const Turned turns = turns_at(i, T, 1, x);
  const Tensor qr = rms_norm(linear(x, p + "wq_a.weight"), p + "q_norm.weight");
  const Tensor kv = rms_norm(linear(x, p + "wkv.weight"), p + "kv_norm.weight");
  const Tensor latent = rotate(kv.view({B, T, 1, D}), turns).squeeze(2);  // keys and values
  const Tensor entries = r > 0 ? entries_of(i, p + "compressor.", x, B, D) : Tensor();
  const Tensor sinks = weight(p + "attn_sink").view({1, 1, H, 1});
  const Tensor down = weight(p + "wo_a.weight").view({n_.o_groups, n_.o_lora, -1}).transpose(1, 2);

  const bool selects = r == train_v4::kSelected;
  const bool sparse = selects && attends == Attends::kChosen;
  IndexParts index;
  if (sparse || (selects && choose)) index = index_parts(i, x.detach(), qr.detach(), B);
  LayerSeen of;
  std::vector<Tensor> out;
  for (std::int64_t begin = 0; begin < T; begin += train_v4::kBlock) {
    const std::int64_t end = std::min(T, begin + train_v4::kBlock), n = end - begin;
    const std::int64_t oldest = std::max<std::int64_t>(0, begin - n_.window + 1);
    const std::int64_t width = end - oldest, count = r > 0 ? end / r : 0;
    const Turned here = turns.of(begin, end);
    const Tensor own = qr.view({B, T, -1}).slice(1, begin, end).reshape({B * n, -1});
    // The norm of a head has no weight.
    const Tensor query = rotate(rms_norm(linear(own, p + "wq_b.weight").view({B, n, H, D})), here) *
                         (1 / std::sqrt(static_cast<double>(D)));
    const Tensor q = query.view({B, n * H, D}), rows = latent.slice(1, oldest, end);
    const auto whole = x.options().dtype(at::kLong);
    const Tensor age = at::arange(begin, end, whole).unsqueeze(1) - at::arange(oldest, end, whole);
    const Tensor outside = age.lt(0).logical_or(age.ge(n_.window)).view({1, n, 1, width});
    std::vector<Tensor> logits = {at::bmm(q, rows.transpose(1, 2))
                                      .view({B, n, H, width})
                                      .masked_fill_(outside, train_v4::kNever)};
    BlockSeen& block = of.emplace_back();
    block.begin = begin;
    if (index.query.defined()) {
      block.scores = indexer_scores(index.query.slice(1, begin, end), index.keys.slice(2, 0, count),
                                    index.weights.slice(1, begin, end));
      block.chosen = best_of(block.scores, begin, r, n_.index_topk);
    }
    if (count > 0) {
      const Tensor unseen = sparse ? block.chosen.logical_not().unsqueeze(2)
                                   : unfinished(begin, end, r, x.device()).view({1, n, 1, count});
      logits.push_back(at::bmm(q, entries.slice(1, 0, count).transpose(1, 2))
                           .view({B, n, H, count})
                           .masked_fill_(unseen, train_v4::kNever));
    }
    logits.push_back(sinks.expand({B, n, H, 1}));  // takes its share and gives nothing
    const Tensor weights = at::cat(logits, 3).softmax(-1);
    Tensor o = at::bmm(weights.narrow(3, 0, width).reshape({B, n * H, width}), rows);
    if (count > 0) {
      o = o + at::bmm(weights.narrow(3, width, count).reshape({B, n * H, count}),
                      entries.slice(1, 0, count));
    }
    // Values were turned with the keys.
    const Tensor turned_back = rotate(o.view({B, n, H, D}), here.back());
    const Tensor groups = turned_back.view({B * n, n_.o_groups, -1}).transpose(0, 1);
    out.push_back(at::bmm(groups, down).transpose(0, 1).reshape({B, n, n_.o_groups * n_.o_lora}));
    if (selects && seen != nullptr) {
      block.attention = share_of_entries(weights.narrow(3, width, count), 2);
    }
  }
  if (selects && seen != nullptr) seen->push_back(std::move(of));
  return linear(at::cat(out, 1).view({B * T, -1}), p + "wo_b.weight");
}

// A softmax over the tokens of an entry, channel by channel. Entries of 4 tokens have the first
// half of the channels of the 4 tokens before as well, beside the second half of their own.
Tensor TrainV4::entries_of(std::size_t i, const std::string& path, const Tensor& x, std::int64_t B,
                           std::int64_t d) const {
  const std::int64_t r = ratio(i), T = x.size(0) / B, count = T / r;
  const bool overlaps = r == train_v4::kSelected;
  const std::int64_t across = overlaps ? 2 * d : d;
  const auto by_entry = [&](const Tensor& rows) {
    return rows.view({B, T, across}).narrow(1, 0, count * r).reshape({B, count, r, across});
  };
  Tensor values = by_entry(linear(x, path + "wkv.weight"));
  Tensor gates = by_entry(linear(x, path + "wgate.weight")) + weight(path + "ape");
  if (overlaps) {
    const auto with_before = [&](const Tensor& own, double missing) {
      const Tensor first = own.new_full({B, std::min<std::int64_t>(1, count), r, d}, missing);
      const Tensor others = own.narrow(1, 0, std::max<std::int64_t>(0, count - 1)).narrow(3, 0, d);
      return at::cat({at::cat({first, others}, 1), own.narrow(3, d, d)}, 2);
    };
    values = with_before(values, 0);
    gates = with_before(gates, train_v4::kNever);
  }
  const Tensor pooled = (gates.softmax(2) * values).sum(2);  // [B, count, d]
  const Tensor y = rms_norm(pooled, path + "norm.weight").unsqueeze(2);
  return rotate(y, turns_at(i, count, r, x)).squeeze(2);
}

// A Hadamard transform of queries and keys would change no score.
TrainV4::IndexParts TrainV4::index_parts(std::size_t i, const Tensor& x, const Tensor& qr,
                                         std::int64_t B) const {
  const std::string p = prefix(i) + "attn.indexer.";
  const std::int64_t T = x.size(0) / B, J = n_.index_heads, D = n_.index_dim;
  IndexParts parts;
  parts.query = rotate(linear(qr, p + "wq_b.weight").view({B, T, J, D}), turns_at(i, T, 1, x));
  parts.keys = entries_of(i, p + "compressor.", x, B, D).transpose(1, 2);
  parts.weights = linear(x, p + "weights_proj.weight").view({B, T, J}) *
                  (1 / std::sqrt(static_cast<double>(J) * static_cast<double>(D)));
  return parts;
}

void TrainV4::read(const TensorSource& source, at::ScalarType type) {
  const ModelNumbers& n = n_;
  const auto tensor = [&](const std::string& name, at::IntArrayRef shape) {
    add(source, type, name, shape);
  };
  const auto compressor = [&](const std::string& p, std::int64_t r, std::int64_t d) {
    const std::int64_t across = r == train_v4::kSelected ? 2 * d : d;
    tensor(p + "wkv.weight", {across, n.hidden});
    tensor(p + "wgate.weight", {across, n.hidden});
    tensor(p + "ape", {r, across});
    tensor(p + "norm.weight", {d});
  };
  tensor("embed.weight", {kModelTokens, n.hidden});
  tensor("norm.weight", {n.hidden});
  for (std::size_t i = 0; i < n.layers.size(); ++i) {
    const std::string p = prefix(i) + "attn.";
    tensor(prefix(i) + "attn_norm.weight", {n.hidden});
    tensor(p + "wq_a.weight", {n.q_lora, n.hidden});
    tensor(p + "q_norm.weight", {n.q_lora});
    tensor(p + "wq_b.weight", {n.heads * n.head_dim, n.q_lora});
    tensor(p + "wkv.weight", {n.head_dim, n.hidden});
    tensor(p + "kv_norm.weight", {n.head_dim});
    tensor(p + "attn_sink", {n.heads});
    tensor(p + "wo_a.weight", {n.o_groups * n.o_lora, n.heads / n.o_groups * n.head_dim});
    tensor(p + "wo_b.weight", {n.hidden, n.o_groups * n.o_lora});
    if (ratio(i) > 0) compressor(p + "compressor.", ratio(i), n.head_dim);
    if (ratio(i) != train_v4::kSelected) continue;
    compressor(p + "indexer.compressor.", ratio(i), n.index_dim);
    tensor(p + "indexer.wq_b.weight", {n.index_heads * n.index_dim, n.q_lora});
    tensor(p + "indexer.weights_proj.weight", {n.index_heads, n.hidden});
  }
}

}  // namespace attnscope::reference
