#include "reference/torch/model_mla.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <numeric>
#include <stdexcept>

#include "reference/torch/device.h"
#include "reference/torch/errors.h"

namespace attnscope::reference {
namespace {

namespace mla_model {

using at::Tensor;

constexpr std::int64_t kBlock = 32;  // tokens at a time in attention
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// [begin, end)
Tensor counted(std::int64_t begin, std::int64_t end) {
  return at::arange(begin, end, at::TensorOptions(torch_device()).dtype(at::kLong));
}

// Of a layer, by position: they grow at the end and may be cut there.
struct LayerPast {
  Tensor keys;    // [positions, heads, nope + rope]
  Tensor values;  // [positions, heads, value_dim]
  Tensor index;   // [positions, index_dim]
};

struct Past {
  std::int64_t length = 0;
  std::vector<LayerPast> layers;
};

// The tokens of one request among those of a step.
struct Part {
  Past* past = nullptr;
  std::int64_t begin = 0, count = 0;
  Tensor of(const Tensor& rows) const { return rows.narrow(0, begin, count); }
};

std::vector<double> doubles(const Tensor& t) {
  const Tensor dense = t.to(at::kDouble).cpu().contiguous();
  const double* data = dense.data_ptr<double>();
  return std::vector<double>(data, data + dense.numel());
}

void append(Tensor& rows, const Tensor& more) {
  rows = rows.defined() ? at::cat({rows, more}) : more.clone();
}

class Model {
 public:
  Model(const MlaNumbers& numbers, const TensorSource& source) : n_(numbers) { read(source); }

  // ids [T]: of all parts, one behind the other.
  ModelOutput forward(std::span<const Part> parts, const Tensor& ids) const {
    std::vector<Tensor> all;
    for (const Part& part : parts) {
      part.past->layers.resize(n_.layers.size());
      const std::int64_t first = part.past->length;
      all.push_back(counted(first, first + part.count));
    }
    const Tensor positions = at::cat(all);
    ModelOutput out;
    Tensor h = weight("model.embed_tokens.weight").index_select(0, ids);
    for (std::size_t i = 0; i < n_.layers.size(); ++i) {
      ModelLayer& seen = out.layers.emplace_back();
      const Tensor x = rms_norm(h, prefix(i) + "input_layernorm.weight");
      h = h + attention(i, x, positions, parts, seen);
      seen.hidden = doubles(h);
    }
    for (const Part& part : parts) part.past->length += part.count;
    const char* head = n_.tied ? "model.embed_tokens.weight" : "lm_head.weight";
    const Tensor logits = linear(rms_norm(h, "model.norm.weight"), head);
    const Tensor best = std::get<0>(logits.topk(2, 1));
    out.logits = doubles(logits);
    out.margin = doubles(best.select(1, 0) - best.select(1, 1));
    for (auto row = out.logits.begin(); row != out.logits.end(); row += kModelTokens) {
      out.next.push_back(
          static_cast<std::int32_t>(std::max_element(row, row + kModelTokens) - row));
    }
    return out;
  }

  void cut(Past& past, std::int64_t length) const {
    past.length = std::min(past.length, length);
    for (LayerPast& layer : past.layers) {
      for (Tensor* rows : {&layer.keys, &layer.values, &layer.index}) {
        if (rows->defined() && rows->size(0) > length) *rows = rows->narrow(0, 0, length).clone();
      }
    }
  }

  // [rope_dim / 2], each step rounded to fp32. YaRN: pairs that turn often in the original length
  // stay, those that do not turn once are as many times slower as the context is longer.
  Tensor frequencies() const {
    const auto dim = static_cast<double>(n_.rope_dim);
    const Tensor pair = at::arange(n_.rope_dim / 2, at::kDouble);
    const Tensor f = (pair * (2 / dim * std::log(n_.rope_theta))).exp().to(at::kFloat).reciprocal();
    if (n_.yarn_factor <= 1) return f;
    const auto pair_that_turns = [&](double times) {  // so often in the original length
      return dim * std::log(n_.yarn_original_max / (times * 2 * std::numbers::pi)) /
             (2 * std::log(n_.rope_theta));
    };
    const double low = std::max(std::floor(pair_that_turns(n_.yarn_beta_fast)), 0.0);
    double high = std::min(std::ceil(pair_that_turns(n_.yarn_beta_slow)), dim - 1);
    if (high == low) high += 0.001;
    const Tensor stays = 1 - ((pair.to(at::kFloat) - low) / (high - low)).clamp(0, 1);
    return (f / n_.yarn_factor * (1 - stays) + f * stays).to(at::kFloat);
  }

  std::int64_t others(const std::string& name, std::int64_t row, std::int64_t column,
                      const TensorEntry& given) const {
    Tensor w = weight(name);
    const Tensor values = in_place(given).to(w.device()).to(at::kDouble);
    if (w.dim() != values.dim() || row + values.size(0) > w.size(0)) return -1;
    w = w.narrow(0, row, values.size(0));
    if (w.dim() == 2) {
      if (column + values.size(1) > w.size(1)) return -1;
      w = w.narrow(1, column, values.size(1));
    }
    const Tensor numbers = w.eq(w).logical_or_(values.eq(values));  // or both are none
    return w.ne(values).logical_and_(numbers).sum().item<std::int64_t>();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, w] : weights_) all.push_back(name);
    return all;
  }

 private:
  // x [T, hidden], normalised; gives [T, hidden].
  Tensor attention(std::size_t i, const Tensor& x, const Tensor& positions,
                   std::span<const Part> parts, ModelLayer& seen) const {
    const std::string p = prefix(i) + "self_attn.";
    const std::int64_t T = x.size(0), H = n_.heads, N = n_.nope_dim, R = n_.rope_dim;
    const Tensor qr = rms_norm(linear(x, p + "q_a_proj.weight"), p + "q_a_layernorm.weight");
    const Tensor q = linear(qr, p + "q_b_proj.weight").view({T, H, N + R}).clone();
    turn_pairs(q.narrow(2, N, R), positions);
    const Tensor row = linear(x, p + "kv_a_proj_with_mqa.weight");
    const Tensor latent = rms_norm(row.narrow(1, 0, n_.kv_lora), p + "kv_a_layernorm.weight");
    const Tensor rotary = row.narrow(1, n_.kv_lora, R).clone().unsqueeze(1);
    turn_pairs(rotary, positions);
    const Tensor up = linear(latent, p + "kv_b_proj.weight").view({T, H, N + n_.value_dim});
    const Tensor keys = at::cat({up.narrow(2, 0, N), rotary.expand({T, H, R})}, 2);
    const Tensor values = up.narrow(2, N, n_.value_dim);
    for (const Part& part : parts) {
      append(part.past->layers[i].keys, part.of(keys));
      append(part.past->layers[i].values, part.of(values));
    }
    std::vector<Tensor> chosen;
    if (n_.selects[i]) chosen = select(i, x, qr, positions, parts, seen);
    std::vector<Tensor> out;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const Part& part = parts[k];
      const LayerPast& past = part.past->layers[i];
      for (std::int64_t begin = 0; begin < part.count; begin += kBlock) {
        const std::int64_t n = std::min(kBlock, part.count - begin);
        Tensor may_see = causal(part, begin, n, past.keys.size(0));
        if (n_.selects[i]) may_see = chosen[k].narrow(0, begin, n);
        out.push_back(attend(part.of(q).narrow(0, begin, n), past, may_see));
      }
    }
    return linear(at::cat(out).view({T, H * n_.value_dim}), p + "o_proj.weight");
  }

  // [n, count]: which positions a token of a part may see.
  static Tensor causal(const Part& part, std::int64_t begin, std::int64_t n, std::int64_t count) {
    const std::int64_t now = part.past->length + begin;
    return counted(0, count).le(counted(now, now + n).unsqueeze(1));
  }

  // q [n, H, D] over the positions of may_see [n, count]; gives [n, H, value_dim].
  Tensor attend(const Tensor& q, const LayerPast& past, const Tensor& may_see) const {
    const Tensor l = at::bmm(q.transpose(0, 1), past.keys.permute({1, 2, 0})).mul_(n_.scale);
    l.masked_fill_(may_see.logical_not().unsqueeze(0), -kInfinite);
    const Tensor o = at::bmm(l.softmax(2), past.values.transpose(0, 1));  // [H, n, V]
    return o.transpose(0, 1).contiguous();
  }

  // Which positions the tokens of each part attend to, [n, positions]. The Hadamard transform that
  // is applied to queries and keys changes no dot product.
  std::vector<Tensor> select(std::size_t i, const Tensor& x, const Tensor& qr,
                             const Tensor& positions, std::span<const Part> parts,
                             ModelLayer& seen) const {
    const std::string p = prefix(i) + "self_attn.indexer.";
    const std::int64_t T = x.size(0), J = n_.index_heads, d = n_.index_dim, R = n_.rope_dim;
    const Tensor q = linear(qr, p + "wq_b.weight").view({T, J, d}).clone();
    turn_halves(q.narrow(2, 0, R), positions);
    Tensor k = linear(x, p + "wk.weight");
    k = k - k.mean({1}, true);
    k = k * (k.square().mean({1}, true) + n_.index_norm_eps).rsqrt();
    k = (k * weight(p + "k_norm.weight") + weight(p + "k_norm.bias")).unsqueeze(1);
    turn_halves(k.narrow(2, 0, R), positions);
    const Tensor w = linear(x, p + "weights_proj.weight") /
                     std::sqrt(static_cast<double>(J) * static_cast<double>(d));
    std::vector<Tensor> chosen;
    for (const Part& part : parts) {
      Tensor& keys = part.past->layers[i].index;
      append(keys, part.of(k).squeeze(1));
      const std::int64_t count = keys.size(0);
      Tensor scores = at::empty({part.count, count}, q.options());
      for (std::int64_t begin = 0; begin < part.count; begin += kBlock) {
        const std::int64_t n = std::min(kBlock, part.count - begin), row = part.begin + begin;
        const Tensor hits = at::mm(q.narrow(0, row, n).reshape({n * J, d}), keys.t()).relu_();
        const Tensor sums = at::bmm(w.narrow(0, row, n).unsqueeze(1), hits.view({n, J, count}));
        scores.narrow(0, begin, n).copy_(sums.squeeze(1));
      }
      const Tensor may_see = causal(part, 0, part.count, count);
      // What is no number never wins over one.
      scores.masked_fill_(may_see.logical_not().logical_or_(scores.isnan()), -kInfinite);
      ModelChoice& choice = seen.choices.emplace_back();
      choice.entries = count;
      choice.scores = doubles(scores);
      const Tensor best = may_see.cpu();
      choose(choice, part.count, best);
      chosen.push_back(best.to(may_see.device()));
    }
    return chosen;
  }

  // Clears what a token leaves out of [n, entries] that it may see: beside the best index_topk all,
  // of equals the later ones.
  void choose(ModelChoice& choice, std::int64_t n, const Tensor& may_see) const {
    const auto count = choice.entries, top = n_.index_topk;
    bool* chosen = may_see.data_ptr<bool>();
    choice.margin.assign(static_cast<std::size_t>(n), kInfinite);
    std::vector<std::int64_t> order;
    for (std::int64_t t = 0; t < n; ++t, chosen += count) {
      const auto seen = std::count(chosen, chosen + count, true);  // the first ones
      if (seen <= top) continue;
      const double* s = choice.scores.data() + t * count;
      order.resize(static_cast<std::size_t>(seen));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [s](std::int64_t a, std::int64_t b) { return s[a] > s[b]; });
      const auto next = order.begin() + top;
      choice.margin[static_cast<std::size_t>(t)] = s[*(next - 1)] - s[*next];
      for (auto left = next; left != order.end(); ++left) chosen[*left] = false;
    }
    choice.selected.assign(may_see.data_ptr<bool>(), may_see.data_ptr<bool>() + n * count);
  }

  // x [T, heads, R] by position times frequency, in place: an fp32 product, whose cos and sin are
  // those of a table in fp32. Neighbours together, or dims i and i + R/2.
  void turn_pairs(const Tensor& x, const Tensor& positions) const {
    turn(x.slice(2, 0, n_.rope_dim, 2), x.slice(2, 1, n_.rope_dim, 2), positions);
  }
  void turn_halves(const Tensor& x, const Tensor& positions) const {
    turn(x.slice(2, 0, n_.rope_dim / 2), x.slice(2, n_.rope_dim / 2, n_.rope_dim), positions);
  }
  void turn(Tensor first, Tensor second, const Tensor& positions) const {
    const Tensor turns = frequencies().to(first.device());
    const Tensor angles = at::outer(positions.to(at::kFloat), turns).to(at::kDouble);
    const auto listed = [](const Tensor& t) {
      return t.to(at::kFloat).to(at::kDouble).unsqueeze(1);
    };
    const Tensor cos = listed(angles.cos()), sin = listed(angles.sin());
    const Tensor a = first.clone(), b = second.clone();
    first.copy_(a * cos - b * sin);
    second.copy_(a * sin + b * cos);
  }

  // Over the last axis.
  Tensor rms_norm(const Tensor& x, const std::string& name) const {
    return x * (x.square().mean({-1}, true) + n_.norm_eps).rsqrt() * weight(name);
  }

  Tensor linear(const Tensor& x, const std::string& name) const {
    return at::mm(x, weight(name).t());
  }

  // ---- weights, by published name

  std::string prefix(std::size_t i) const {
    return "model.layers." + std::to_string(n_.layers[i]) + ".";
  }
  const Tensor& weight(const std::string& name) const { return weights_.at(name); }

  void read(const TensorSource& source) {
    const std::int64_t H = n_.heads, N = n_.nope_dim, R = n_.rope_dim, V = n_.value_dim;
    add(source, "model.embed_tokens.weight", {kModelTokens, n_.hidden});
    add(source, "model.norm.weight", {n_.hidden});
    if (!n_.tied) add(source, "lm_head.weight", {kModelTokens, n_.hidden});
    for (std::size_t i = 0; i < n_.layers.size(); ++i) {
      const std::string p = prefix(i) + "self_attn.", x = p + "indexer.";
      add(source, prefix(i) + "input_layernorm.weight", {n_.hidden});
      add(source, p + "q_a_proj.weight", {n_.q_lora, n_.hidden});
      add(source, p + "q_a_layernorm.weight", {n_.q_lora});
      add(source, p + "q_b_proj.weight", {H * (N + R), n_.q_lora});
      add(source, p + "kv_a_proj_with_mqa.weight", {n_.kv_lora + R, n_.hidden});
      add(source, p + "kv_a_layernorm.weight", {n_.kv_lora});
      add(source, p + "kv_b_proj.weight", {H * (N + V), n_.kv_lora});
      add(source, p + "o_proj.weight", {n_.hidden, H * V});
      if (!n_.selects[i]) continue;
      add(source, x + "wq_b.weight", {n_.index_heads * n_.index_dim, n_.q_lora});
      add(source, x + "wk.weight", {n_.index_dim, n_.hidden});
      add(source, x + "k_norm.weight", {n_.index_dim});
      add(source, x + "k_norm.bias", {n_.index_dim});
      add(source, x + "weights_proj.weight", {n_.index_heads, n_.hidden});
    }
  }

  // e4m3fn: a sign, four bits of exponent with bias 7, three of fraction; no infinities.
  static Tensor codes_as_numbers(const Tensor& codes) {
    const Tensor numbers = at::empty({256}, at::kDouble);
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, fraction = code & 7;
      double value =
          exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
      if ((code & 127) == 127) value = std::nan("");
      numbers[code] = code < 128 ? value : -value;
    }
    return numbers.index_select(0, codes.flatten().to(at::kLong)).view(codes.sizes());
  }

  // Of a weight that is published in FP8: codes times the scales of blocks of 128 x 128, rounded to
  // bf16 once.
  static Tensor decoded(const TensorSource& source, const std::string& name,
                        const TensorEntry& entry) {
    const TensorEntry* scales = source(name.substr(0, name.rfind('.')) + ".scale");
    if (scales == nullptr) throw std::invalid_argument(name + ": FP8 codes without scales");
    const Tensor codes = at::empty(entry.shape, at::kByte);
    std::memcpy(codes.data_ptr(), entry.data, entry.bytes);
    Tensor scale;
    if (scales->type == ElementType::kF8E8m0) {
      const Tensor bytes = at::empty(scales->shape, at::kByte);
      std::memcpy(bytes.data_ptr(), scales->data, scales->bytes);
      scale = (bytes.to(at::kDouble) - 127).exp2();
    } else {
      scale = in_place(*scales).to(at::kDouble);
    }
    scale = scale.repeat_interleave(128, 0).narrow(0, 0, codes.size(0));
    scale = scale.repeat_interleave(128, 1).narrow(1, 0, codes.size(1));
    const auto [fraction, exponent] = at::frexp(codes_as_numbers(codes) * scale);
    return at::ldexp((fraction * 256).round(), exponent - 8);  // halves to even
  }

  // All of them are bf16.
  void add(const TensorSource& source, const std::string& name, at::IntArrayRef shape) {
    const TensorEntry* entry = source(name);
    if (entry == nullptr) throw std::invalid_argument(name + ": the model has no such tensor");
    const bool codes = entry->type == ElementType::kF8E4m3;
    Tensor t = codes ? decoded(source, name, *entry) : in_place(*entry);
    if (shape[0] == kModelTokens && t.dim() == 2 && t.size(0) > shape[0]) {
      t = t.narrow(0, 0, shape[0]);
    }
    if (t.sizes() != shape) {
      throw std::invalid_argument(name + ": a shape that is not the model's");
    }
    weights_[name] = t.to(at::kBFloat16).to(torch_device()).to(at::kDouble);
  }

  // As the file has it; of several axes all but the last are rows.
  static Tensor in_place(const TensorEntry& entry) {
    at::ScalarType type = at::kByte;
    if (entry.type == ElementType::kBf16) type = at::kBFloat16;
    if (entry.type == ElementType::kF16) type = at::kHalf;
    if (entry.type == ElementType::kF32) type = at::kFloat;
    if (entry.type == ElementType::kF64) type = at::kDouble;
    if (type == at::kByte ||
        static_cast<std::size_t>(entry.elements) * c10::elementSize(type) != entry.bytes) {
      throw std::invalid_argument(entry.name + ": no type of weights");
    }
    Tensor t = at::empty(entry.shape, type);
    std::memcpy(t.data_ptr(), entry.data, entry.bytes);
    return t;
  }

  MlaNumbers n_;
  std::map<std::string, Tensor> weights_;  // in float64
};

// The border: what libtorch throws becomes an error here.
class TorchModel : public ModelReference {
 public:
  TorchModel(const MlaNumbers& numbers, const TensorSource& source,
             std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), model_(numbers, source) {}

  Result<ModelOutput> step(std::span<const ModelRows> rows) override {
    try {
      const c10::InferenceMode inference;
      std::vector<Part> parts;
      std::vector<std::int64_t> ids;
      for (const ModelRows& r : rows) {
        const auto begin = static_cast<std::int64_t>(ids.size());
        ids.insert(ids.end(), r.tokens.begin(), r.tokens.end());
        parts.push_back({&requests_[r.request], begin, std::ssize(r.tokens)});
      }
      return model_.forward(parts, at::tensor(ids).to(torch_device()));
    } catch (const std::exception& e) {
      for (const ModelRows& r : rows) cut(r.request, length(r.request));  // what some layers have
      return error_of("ref.model", e);
    }
  }
  std::int64_t length(std::int64_t request) const override {
    const auto it = requests_.find(request);
    return it == requests_.end() ? 0 : it->second.length;
  }
  void cut(std::int64_t request, std::int64_t length) override {
    const c10::InferenceMode inference;
    const auto it = requests_.find(request);
    if (it != requests_.end()) model_.cut(it->second, length);
  }

  std::vector<std::string> weights() const override { return model_.names(); }
  std::int64_t others(const std::string& weight, std::int64_t row, std::int64_t column,
                      const TensorEntry& given, const TensorEntry*) const override {
    const c10::InferenceMode inference;
    return model_.others(weight, row, column, given);
  }
  std::vector<double> frequencies(std::size_t) const override {
    const c10::InferenceMode inference;
    return doubles(model_.frequencies());
  }

 private:
  std::shared_ptr<const void> owner_;
  Model model_;
  std::map<std::int64_t, Past> requests_;
};

}  // namespace mla_model

}  // namespace

Result<std::unique_ptr<ModelReference>> make_torch_mla_model(const MlaNumbers& numbers,
                                                             const TensorSource& source,
                                                             std::shared_ptr<const void> owner) {
  try {
    const c10::InferenceMode inference;
    std::unique_ptr<ModelReference> model =
        std::make_unique<mla_model::TorchModel>(numbers, source, std::move(owner));
    return model;
  } catch (const std::exception& e) {
    if (is_out_of_memory(e)) return error_of("ref.model", e);
    return bad_input(std::string("ref.model: ") + e.what(), "see `model tensors`");
  }
}

}  // namespace attnscope::reference
