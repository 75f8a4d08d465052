#include "reference/torch/model_dense.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <stdexcept>

#include "reference/torch/device.h"
#include "reference/torch/errors.h"

namespace attnscope::reference {
namespace {

namespace dense_model {

using at::Tensor;

constexpr std::int64_t kBlock = 32;  // tokens at a time in attention
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr const char* kSlopes = "alibi_slopes";  // beside the weights: no file has them

// [begin, end)
Tensor counted(std::int64_t begin, std::int64_t end) {
  return at::arange(begin, end, at::TensorOptions(torch_device()).dtype(at::kLong));
}

// Keys and values of a layer by position: they grow at the end and may be cut there.
struct LayerPast {
  Tensor keys, values;  // [positions, KV heads, D]
};

struct Past {
  std::int64_t length = 0;
  std::int64_t source = 0;  // its first tokens, where an encoder sees them
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
  Model(const DenseNumbers& numbers, const TensorSource& source) : n_(numbers) { read(source); }

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
    Tensor h = weight(embedding()).index_select(0, ids);
    for (std::size_t i = 0; i < n_.layers.size(); ++i) {
      const Tensor x = rms_norm(h, norm_name(i));
      h = h + (two_sided() ? sided_attention(i, h, x, parts) : attention(i, x, positions, parts));
      out.layers.emplace_back().hidden = doubles(h);
    }
    for (const Part& part : parts) part.past->length += part.count;
    const char* norm = two_sided() ? "decoder.final_layer_norm.weight" : "model.norm.weight";
    const Tensor logits = linear(rms_norm(h, norm), n_.tied ? embedding() : "lm_head.weight");
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
    for (std::size_t i = 0; i < past.layers.size(); ++i) {
      // Layers of a decoder have the rows behind the source alone.
      const bool behind = two_sided() && n_.sides[i] == DenseNumbers::kTarget;
      const std::int64_t left = std::max<std::int64_t>(0, behind ? length - past.source : length);
      for (Tensor* rows : {&past.layers[i].keys, &past.layers[i].values}) {
        if (rows->defined() && rows->size(0) > left) *rows = rows->narrow(0, 0, left).clone();
      }
    }
  }

  // [rope_dim / 2], each step rounded to fp32.
  Tensor frequencies(std::size_t i) const {
    if (!(n_.rope_thetas[i] > 0)) return at::empty({0}, at::kFloat);
    const double exponent = 2 / static_cast<double>(n_.rope_dim) * std::log(n_.rope_thetas[i]);
    const Tensor pair = at::arange(n_.rope_dim / 2, at::kDouble);
    return (pair * exponent).exp().to(at::kFloat).reciprocal();
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
  bool reads_others(std::size_t i) const { return i < n_.rows_of.size() && n_.rows_of[i] >= 0; }

  // x [T, hidden], normalised; gives [T, hidden].
  Tensor attention(std::size_t i, const Tensor& x, const Tensor& positions,
                   std::span<const Part> parts) const {
    const std::string p = prefix(i) + "self_attn.";
    const std::int64_t T = x.size(0), D = n_.head_dim;
    Tensor q = linear(x, p + "q_proj.weight").view({T, n_.heads, D});
    if (n_.qk_norm) q = rms_norm(q, p + "q_norm.weight");
    q = rotate(q, positions, i);
    Tensor k, v;
    if (!reads_others(i)) {
      k = linear(x, p + "k_proj.weight").view({T, n_.kv_heads, D});
      v = linear(x, p + "v_proj.weight").view({T, n_.kv_heads, D});
      if (n_.qk_norm) k = rms_norm(k, p + "k_norm.weight");
      k = rotate(k, positions, i);
    }
    std::vector<Tensor> out;
    for (const Part& part : parts) {
      // Those of another layer have this step's rows already: it ran before.
      const std::size_t of = reads_others(i) ? static_cast<std::size_t>(n_.rows_of[i]) : i;
      LayerPast& past = part.past->layers[of];
      if (!reads_others(i)) {
        append(past.keys, part.of(k));
        append(past.values, part.of(v));
      }
      for (std::int64_t begin = 0; begin < part.count; begin += kBlock) {
        const std::int64_t n = std::min(kBlock, part.count - begin);
        out.push_back(attend(i, part.of(q).narrow(0, begin, n), part.past->length + begin, past));
      }
    }
    return linear(at::cat(out).view({T, n_.heads * D}), p + "o_proj.weight");
  }

  // q [T, H, D] of tokens from position `now` on, each over the keys up to its own, or those of
  // its window, or of its chunk; in encoders over all. Query heads h of KV head g are those with h
  // / (H / G) = g. A sink takes its share and gives nothing.
  Tensor attend(std::size_t i, const Tensor& q, std::int64_t now, const LayerPast& past) const {
    const std::int64_t T = q.size(0), H = n_.heads, G = n_.kv_heads, D = n_.head_dim;
    const std::int64_t N = n_.encoder || n_.shows ? past.keys.size(0) : now + T;
    const std::int64_t chunk = i < n_.chunks.size() ? n_.chunks[i] : 0;
    const Tensor keys = past.keys.narrow(0, 0, N).permute({1, 2, 0});   // [G, D, N]
    const Tensor values = past.values.narrow(0, 0, N).transpose(0, 1);  // [G, N, D]
    const Tensor queries = q.view({T, G, H / G, D}).transpose(0, 1).reshape({G, -1, D});
    Tensor l = at::bmm(queries, keys).mul_(n_.scale);
    if (n_.soft_cap > 0) l = (l / n_.soft_cap).tanh() * n_.soft_cap;
    const Tensor t = counted(now, now + T).unsqueeze(1);
    const Tensor key = counted(0, N);
    if (n_.alibi_bias_max > 0) {
      const Tensor apart = (key - t).abs().to(at::kDouble).view({1, T, 1, N});
      l = l.view({G, T, H / G, -1}) - apart * weight(kSlopes).view({G, 1, H / G, 1});
    }
    // A user's mask says what is seen of all keys, or of those of a window or a chunk.
    const bool ahead = n_.encoder || (n_.shows && n_.windows[i] == 0 && chunk == 0);
    Tensor seen = ahead ? key.ge(0).expand({T, N}) : key.le(t);
    if (n_.windows[i] > 0) seen = seen.logical_and(key.gt(t - n_.windows[i]));
    // Keys of the same chunk are as many whole chunks behind the first token.
    if (chunk > 0) {
      seen = seen.logical_and(at::floor_divide(key, chunk).eq(at::floor_divide(t, chunk)));
    }
    l = l.view({G, T, H / G, -1});
    if (n_.shows || n_.score) l = by_user(l, now);
    l = l.masked_fill(seen.logical_not().view({1, T, 1, -1}), -kInfinite);
    Tensor top = l.amax(3, true), sinks;
    if (n_.sinks) {
      sinks = weight(prefix(i) + "self_attn.sinks").view({G, 1, H / G, 1});
      // One that takes all is beyond every logit: nothing is left then.
      top = at::maximum(top, sinks.masked_fill(sinks.isposinf(), -kInfinite));
    }
    top = top.masked_fill(top.isneginf(), 0);  // it sees nothing, and gives nothing
    const Tensor e = (l - top).exp();
    Tensor sum = e.sum(3, true);
    if (n_.sinks) sum = sum + (sinks - top).exp();
    const Tensor share = (e / sum).masked_fill(sum.eq(0), 0);
    const Tensor o = at::bmm(share.view({G, -1, N}), values);
    return o.view({G, T, H / G, D}).transpose(0, 1).reshape({T, H, D});
  }

  // ---- encoder-decoders

  bool two_sided() const { return !n_.sides.empty(); }
  const char* embedding() const {
    return two_sided() ? "shared.weight" : "model.embed_tokens.weight";
  }

  // Of a layer's module: "decoder.block.1.layer.1.".
  std::string module(std::size_t i) const {
    const std::int64_t behind = n_.layers[i] - n_.encoder_layers;
    if (behind < 0) return "encoder.block." + std::to_string(n_.layers[i]) + ".layer.0.";
    return "decoder.block." + std::to_string(behind / 2) + ".layer." + std::to_string(behind % 2) +
           ".";
  }
  std::string norm_name(std::size_t i) const {
    return two_sided() ? module(i) + "layer_norm.weight" : prefix(i) + "input_layernorm.weight";
  }
  std::string sided_prefix(std::size_t i) const {
    return module(i) +
           (n_.sides[i] == DenseNumbers::kCross ? "EncDecAttention." : "SelfAttention.");
  }
  static std::string bias_name(bool source) {
    return std::string(source ? "encoder" : "decoder") +
           ".block.0.layer.0.SelfAttention.relative_attention_bias.weight";
  }

  // x [T, hidden] of h, normalised; gives [T, hidden], zero for tokens of the other side.
  Tensor sided_attention(std::size_t i, const Tensor& h, const Tensor& x,
                         std::span<const Part> parts) const {
    const std::string p = sided_prefix(i);
    const std::int64_t T = x.size(0), side = n_.sides[i];
    const auto heads = [&](const Tensor& from, const char* name) {
      return linear(from, p + name).view({T, n_.heads, n_.head_dim});
    };
    const Tensor from =
        side == DenseNumbers::kCross ? rms_norm(h, "encoder.final_layer_norm.weight") : x;
    const Tensor q = heads(x, "q.weight"), k = heads(from, "k.weight"), v = heads(from, "v.weight");
    const Tensor o = at::zeros_like(q);
    for (const Part& part : parts) {
      Past& past = *part.past;
      const std::int64_t source =
          std::clamp<std::int64_t>(past.source - past.length, 0, part.count);
      if (source > 0 && source < past.source) {
        throw std::invalid_argument("a source comes in pieces; an encoder sees all of it");
      }
      const auto of_source = [&](const Tensor& t) { return t.narrow(0, part.begin, source); };
      const auto of_target = [&](const Tensor& t) {
        return t.narrow(0, part.begin + source, part.count - source);
      };
      if (side == DenseNumbers::kSource) {
        if (source == 0) continue;
        of_source(o).copy_(
            sided(of_source(q), of_source(k), of_source(v), true, 0, bias_name(true)));
        continue;
      }
      LayerPast& rows = past.layers[i];
      const bool cross = side == DenseNumbers::kCross;
      if (!cross || source > 0) {
        append(rows.keys, cross ? of_source(k) : of_target(k));
        append(rows.values, cross ? of_source(v) : of_target(v));
      }
      if (source == part.count) continue;
      const std::int64_t target = std::max<std::int64_t>(0, past.length - past.source);
      of_target(o).copy_(sided(of_target(q), rows.keys, rows.values, cross, target,
                               cross ? std::string() : bias_name(false)));
    }
    return linear(o.view({T, n_.heads * n_.head_dim}), p + "o.weight");
  }

  // q [n, H, D] of places from `now` on over keys [N, H, D], which have places of their own where
  // these are another side's; all: not only those up to its own.
  Tensor sided(const Tensor& q, const Tensor& k, const Tensor& v, bool all, std::int64_t now,
               const std::string& bias) const {
    Tensor l = at::bmm(q.transpose(0, 1), k.permute({1, 2, 0})).mul_(n_.scale);  // [H, n, N]
    const Tensor key = counted(0, k.size(0));
    const Tensor behind = key - counted(now, now + q.size(0)).unsqueeze(1);
    if (!bias.empty()) {
      const Tensor of_pair = weight(bias).index_select(0, buckets(behind, all).reshape({-1}));
      l = l + of_pair.view({q.size(0), k.size(0), n_.heads}).permute({2, 0, 1});
    }
    if (n_.shows || n_.score) l = by_user(l.unsqueeze(2), now).squeeze(2);
    if (!all) l = l.masked_fill(behind.gt(0), -kInfinite);
    // Who sees nothing gives nothing.
    const Tensor share = l.softmax(2).masked_fill(l.amax(2, true).isneginf(), 0);
    return at::bmm(share, v.transpose(0, 1)).transpose(0, 1);
  }

  // Of distances of keys behind queries; both: before and behind have buckets of their own.
  Tensor buckets(const Tensor& behind, bool both) const {
    const std::int64_t n = both ? n_.bias_buckets / 2 : n_.bias_buckets, exact = n / 2;
    const Tensor far = both ? behind.abs() : behind.neg().clamp_min(0);
    const double e = static_cast<double>(exact);
    const double each =
        std::log(static_cast<double>(n_.bias_distance) / e) / static_cast<double>(n - exact);
    const Tensor log = far.clamp_min(exact).to(at::kDouble).div(e).log().div(each).add(1e-9);
    const Tensor wide = log.floor().to(at::kLong).add(exact).clamp_max(n - 1);
    const Tensor bucket = at::where(far.lt(exact), far, wide);
    return both ? bucket + behind.gt(0).to(at::kLong) * n : bucket;
  }

  // l [G, T, H / G, N] as a user's mask and score function have it, number by number.
  Tensor by_user(const Tensor& l, std::int64_t now) const {
    Tensor out = l.cpu().contiguous();
    auto numbers = out.accessor<double, 4>();
    for (std::int64_t g = 0; g < out.size(0); ++g) {
      for (std::int64_t t = 0; t < out.size(1); ++t) {
        for (std::int64_t i = 0; i < out.size(2); ++i) {
          const std::int64_t head = g * out.size(2) + i;
          for (std::int64_t k = 0; k < out.size(3); ++k) {
            double& score = numbers[g][t][i][k];
            if (n_.score) score = n_.score(score, now + t, k, head);
            if (n_.shows && !n_.shows(now + t, k, head)) score = -kInfinite;
          }
        }
      }
    }
    return out.to(l.device());
  }

  // Rotates the first dims of x [T, heads, D] by position times frequency: an fp32 product, whose
  // cos and sin are those of a table in fp32.
  Tensor rotate(const Tensor& x, const Tensor& positions, std::size_t i) const {
    if (!(n_.rope_thetas[i] > 0)) return x;
    const Tensor turns = frequencies(i).to(x.device());
    const Tensor angles = at::outer(positions.to(at::kFloat), turns).to(at::kDouble);
    const auto listed = [](const Tensor& t) {
      return t.to(at::kFloat).to(at::kDouble).unsqueeze(1);
    };
    const Tensor cos = listed(angles.cos()), sin = listed(angles.sin());
    const std::int64_t half = n_.rope_dim / 2;
    const Tensor out = x.clone();
    const auto first = [&](const Tensor& t) {
      return n_.pairs ? t.slice(2, 0, n_.rope_dim, 2) : t.slice(2, 0, half);
    };
    const auto second = [&](const Tensor& t) {
      return n_.pairs ? t.slice(2, 1, n_.rope_dim, 2) : t.slice(2, half, n_.rope_dim);
    };
    first(out).copy_(first(x) * cos - second(x) * sin);
    second(out).copy_(first(x) * sin + second(x) * cos);
    return out;
  }

  // Over the last axis.
  Tensor rms_norm(const Tensor& x, const std::string& name) const {
    const Tensor y = x * (x.square().mean({-1}, true) + n_.norm_eps).rsqrt();
    const Tensor& w = weight(name);
    return y * (n_.weight_plus_one ? w + 1 : w);
  }

  Tensor linear(const Tensor& x, const std::string& name) const {
    return at::mm(x, weight(name).t());
  }

  // ---- weights, by published name

  std::string prefix(std::size_t i) const {
    return "model.layers." + std::to_string(n_.layers[i]) + ".";
  }
  const Tensor& weight(const std::string& name) const { return weights_.at(name); }

  // Those of the next power of two of heads: every second one first, then what is left.
  Tensor slopes() const {
    std::int64_t n = 1;
    while (n < n_.heads) n *= 2;
    const Tensor all = (at::arange(1, n + 1, at::kDouble) * (-n_.alibi_bias_max / n)).exp2();
    const Tensor order =
        n == n_.heads ? all : at::cat({all.slice(0, 1, n, 2), all.slice(0, 0, n, 2)});
    return order.slice(0, 0, n_.heads).to(at::kFloat).to(at::kDouble);
  }

  void read(const TensorSource& source) {
    if (n_.alibi_bias_max > 0) weights_[kSlopes] = slopes().to(torch_device());
    const std::int64_t q = n_.heads * n_.head_dim, kv = n_.kv_heads * n_.head_dim;
    if (two_sided()) return read_sided(source, q);
    add(source, "model.embed_tokens.weight", {kModelTokens, n_.hidden});
    add(source, "model.norm.weight", {n_.hidden});
    if (!n_.tied) add(source, "lm_head.weight", {kModelTokens, n_.hidden});
    for (std::size_t i = 0; i < n_.layers.size(); ++i) {
      const std::string p = prefix(i) + "self_attn.";
      add(source, prefix(i) + "input_layernorm.weight", {n_.hidden});
      add(source, p + "q_proj.weight", {q, n_.hidden});
      const bool rows = !reads_others(i);
      if (rows) add(source, p + "k_proj.weight", {kv, n_.hidden});
      if (rows) add(source, p + "v_proj.weight", {kv, n_.hidden});
      add(source, p + "o_proj.weight", {n_.hidden, q});
      if (n_.qk_norm) add(source, p + "q_norm.weight", {n_.head_dim});
      if (n_.qk_norm && rows) add(source, p + "k_norm.weight", {n_.head_dim});
      if (n_.sinks) add(source, p + "sinks", {n_.heads});
      for (const char* leaf : {"k_scale", "v_scale"}) {
        if (n_.cache_scales > 0) add(source, p + leaf, {n_.cache_scales});
      }
    }
  }

  void read_sided(const TensorSource& source, std::int64_t q) {
    add(source, embedding(), {kModelTokens, n_.hidden});
    add(source, "encoder.final_layer_norm.weight", {n_.hidden});
    add(source, "decoder.final_layer_norm.weight", {n_.hidden});
    if (!n_.tied) add(source, "lm_head.weight", {kModelTokens, n_.hidden});
    for (const bool encoder : {true, false}) {
      add(source, bias_name(encoder), {n_.bias_buckets, n_.heads});
    }
    for (std::size_t i = 0; i < n_.layers.size(); ++i) {
      add(source, norm_name(i), {n_.hidden});
      for (const char* leaf : {"q", "k", "v"}) {
        add(source, sided_prefix(i) + leaf + ".weight", {q, n_.hidden});
      }
      add(source, sided_prefix(i) + "o.weight", {n_.hidden, q});
    }
  }

  // Sinks, biases and scales of caches are fp32, all else bf16.
  void add(const TensorSource& source, const std::string& name, at::IntArrayRef shape) {
    const TensorEntry* entry = source(name);
    if (entry == nullptr) throw std::invalid_argument(name + ": the model has no such tensor");
    Tensor t = in_place(*entry);
    if (shape[0] == kModelTokens && t.dim() == 2 && t.size(0) > shape[0]) {
      t = t.narrow(0, 0, shape[0]);
    }
    if (t.dim() == 0 && shape.size() == 1) t = t.view({1});
    if (t.sizes() != shape) {
      throw std::invalid_argument(name + ": a shape that is not the model's");
    }
    const bool sinks = name.ends_with("sinks");
    const bool fp32 = sinks || name.ends_with("relative_attention_bias.weight") ||
                      name.ends_with("k_scale") || name.ends_with("v_scale");
    t = t.to(fp32 ? at::kFloat : at::kBFloat16);
    if (sinks) t = t + n_.sink_shift;
    for (const auto& [head, sink] : n_.given_sinks) {
      if (sinks) t.select(0, head).fill_(sink);
    }
    weights_[name] = t.to(torch_device()).to(at::kDouble);
  }

  // As the file has it.
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

  DenseNumbers n_;
  std::map<std::string, Tensor> weights_;  // in float64
};

// The border: what libtorch throws becomes an error here.
class TorchModel : public ModelReference {
 public:
  TorchModel(const DenseNumbers& numbers, const TensorSource& source,
             std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), model_(numbers, source), source_lens_(numbers.source_lens) {}

  Result<ModelOutput> step(std::span<const ModelRows> rows) override {
    try {
      const c10::InferenceMode inference;
      std::vector<Part> parts;
      std::vector<std::int64_t> ids;
      for (const ModelRows& r : rows) {
        const auto begin = static_cast<std::int64_t>(ids.size());
        ids.insert(ids.end(), r.tokens.begin(), r.tokens.end());
        Past& past = requests_[r.request];
        const auto id = static_cast<std::size_t>(r.request);
        if (id < source_lens_.size()) past.source = source_lens_[id];
        parts.push_back({&past, begin, std::ssize(r.tokens)});
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
  std::vector<double> frequencies(std::size_t layer) const override {
    const c10::InferenceMode inference;
    return doubles(model_.frequencies(layer));
  }

 private:
  std::shared_ptr<const void> owner_;
  Model model_;
  std::vector<std::int64_t> source_lens_;
  std::map<std::int64_t, Past> requests_;
};

}  // namespace dense_model

}  // namespace

Result<std::unique_ptr<ModelReference>> make_torch_dense_model(const DenseNumbers& numbers,
                                                               const TensorSource& source,
                                                               std::shared_ptr<const void> owner) {
  try {
    const c10::InferenceMode inference;
    std::unique_ptr<ModelReference> model =
        std::make_unique<dense_model::TorchModel>(numbers, source, std::move(owner));
    return model;
  } catch (const std::exception& e) {
    if (is_out_of_memory(e)) return error_of("ref.model", e);
    return bad_input(std::string("ref.model: ") + e.what(), "see `model tensors`");
  }
}

}  // namespace attnscope::reference
