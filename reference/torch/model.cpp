#include "reference/torch/model.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <stdexcept>

namespace attnscope::reference {
namespace {

using at::Tensor;

constexpr std::int64_t kConvertedRows = 256;                      // of a weight at a time
constexpr std::int64_t kFloat64Weights = std::int64_t{64} << 20;  // values kept in float64 at most
constexpr std::int64_t kBlock = 32;                               // tokens at a time in attention
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Rows of a history: they grow at the end and may be cut there.
class Rows {
 public:
  void append(const Tensor& rows) {
    const std::int64_t needed = size_ + rows.size(0);
    if (!storage_.defined() || needed > storage_.size(0)) {
      Tensor larger = at::empty({2 * needed, rows.size(1)}, at::kDouble);
      if (size_ > 0) larger.narrow(0, 0, size_).copy_(all());
      storage_ = larger;
    }
    storage_.narrow(0, size_, rows.size(0)).copy_(rows);
    size_ = needed;
  }
  void cut(std::int64_t size) { size_ = std::min(size_, size); }
  std::int64_t size() const { return size_; }
  Tensor all() const { return storage_.narrow(0, 0, size_); }
  Tensor range(std::int64_t begin, std::int64_t end) const {
    return storage_.narrow(0, begin, end - begin);
  }

 private:
  Tensor storage_;
  std::int64_t size_ = 0;
};

// What a compressor made of each token, and the entries of its finished windows.
struct Compressed {
  Rows values, scores, entries;
};

struct LayerPast {
  Rows latent;  // by position: the one row that is key and value of all heads
  Compressed main, index;
};

struct Past {
  std::int64_t length = 0;
  std::vector<LayerPast> layers;
};

template <class T = double>
std::vector<T> values_of(const Tensor& t) {
  const Tensor dense = t.contiguous();
  const T* data = dense.data_ptr<T>();
  return std::vector<T>(data, data + dense.numel());
}

class Model {
 public:
  Model(const ModelNumbers& numbers, const TensorSource& source) : n_(numbers) { read(source); }

  ModelOutput forward(Past& past, std::span<const std::int32_t> tokens) const {
    const Tensor ids = at::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end()));
    const Tensor positions = at::arange(past.length, past.length + ids.size(0), at::kLong);
    const Tensor embedding = weight("embed.weight").to(at::kDouble);
    ModelOutput out;
    past.layers.resize(n_.layers.size());
    Tensor h = embedding.index_select(0, ids);
    for (std::size_t i = 0; i < n_.layers.size(); ++i) {
      ModelLayer& seen = out.layers.emplace_back();
      const Tensor x = rms_norm(h, weight(prefix(i) + "attn_norm.weight"));
      h = h + attention(i, x, positions, past.layers[i], seen);
      seen.hidden = values_of(h);
    }
    past.length += ids.size(0);
    const Tensor logits = at::mm(rms_norm(h, weight("norm.weight")), embedding.t());
    const Tensor best = std::get<0>(logits.topk(2, 1));
    out.logits = values_of(logits);
    out.margin = values_of(best.select(1, 0) - best.select(1, 1));
    for (auto row = out.logits.begin(); row != out.logits.end(); row += kModelTokens) {
      out.next.push_back(
          static_cast<std::int32_t>(std::max_element(row, row + kModelTokens) - row));
    }
    return out;
  }

  void cut(Past& past, std::int64_t length) const {
    past.length = std::min(past.length, length);
    for (std::size_t i = 0; i < past.layers.size(); ++i) {
      past.layers[i].latent.cut(length);
      for (Compressed* c : {&past.layers[i].main, &past.layers[i].index}) {
        c->values.cut(length);
        c->scores.cut(length);
        if (ratio(i) > 0) c->entries.cut(length / ratio(i));
      }
    }
  }

 private:
  // x [T, hidden], normalised; gives [T, hidden].
  Tensor attention(std::size_t i, const Tensor& x, const Tensor& positions, LayerPast& past,
                   ModelLayer& seen) const {
    const std::int64_t T = x.size(0), first = positions[0].item<std::int64_t>();
    const std::int64_t ratio = this->ratio(i);
    const std::string p = prefix(i) + "attn.";
    const Tensor qr = rms_norm(linear(x, p + "wq_a.weight"), weight(p + "q_norm.weight"));
    const Tensor kv = rms_norm(linear(x, p + "wkv.weight"), weight(p + "kv_norm.weight"));
    Tensor q = linear(qr, p + "wq_b.weight").view({T, n_.heads, n_.head_dim});
    q = rotate(rms_norm(q, {}), positions, i);
    past.latent.append(rotate(kv.unsqueeze(1), positions, i).squeeze(1));
    if (ratio > 0) compress(i, p + "compressor.", x, n_.head_dim, past.main);
    if (ratio == 4) compress(i, p + "indexer.compressor.", x, n_.index_dim, past.index);
    const Tensor chosen = ratio == 4 ? select(i, x, qr, positions, past.index.entries, seen)
                                     : finished(positions, ratio, past.main.entries.size());
    const Tensor sinks = weight(p + "attn_sink").to(at::kDouble).unsqueeze(1);
    std::vector<Tensor> o;
    for (std::int64_t begin = 0; begin < T; begin += kBlock) {
      const std::int64_t count = std::min(kBlock, T - begin), now = first + begin;
      const Tensor t = positions.narrow(0, begin, count).unsqueeze(1);
      const std::int64_t oldest = std::max<std::int64_t>(0, now - n_.window + 1);
      const Tensor key = at::arange(oldest, now + count, at::kLong);
      const Tensor in_window = key.le(t).logical_and(key.gt(t - n_.window));
      const Tensor mask = chosen.narrow(0, begin, count);
      const Tensor used = mask.any(0).nonzero().squeeze(1);
      Tensor rows = past.latent.range(oldest, now + count);
      if (used.numel() > 0) rows = at::cat({rows, past.main.entries.all().index_select(0, used)});
      o.push_back(attend(q.narrow(0, begin, count), rows,
                         at::cat({in_window, mask.index_select(1, used)}, 1), sinks));
    }
    const Tensor turned = rotate(at::cat(o), -positions, i).view({T, n_.o_groups, -1});
    return linear(grouped_linear(turned, p + "wo_a.weight"), p + "wo_b.weight");
  }

  // Which of so many entries each token may see: [T, entries], those whose tokens are all there.
  static Tensor finished(const Tensor& positions, std::int64_t ratio, std::int64_t entries) {
    const Tensor last = (at::arange(entries, at::kLong) + 1) * ratio - 1;
    return last.le(positions.unsqueeze(1));
  }

  // q [T, H, D] over rows [N, D], which are keys and values, where mask [T, N] says so. A sink
  // takes its share and gives nothing.
  static Tensor attend(const Tensor& q, const Tensor& rows, const Tensor& mask,
                       const Tensor& sinks) {
    const std::int64_t T = q.size(0), H = q.size(1), D = q.size(2);
    Tensor l = at::mm(q.reshape({T * H, D}), rows.t()).view({T, H, -1});
    l = (l / std::sqrt(static_cast<double>(D))).masked_fill(~mask.unsqueeze(1), -kInfinite);
    const Tensor top = at::maximum(l.amax(2, true), sinks);
    const Tensor e = (l - top).exp();
    const Tensor sum = at::mm(e.view({T * H, -1}), rows).view({T, H, D});
    return sum / (e.sum(2, true) + (sinks - top).exp());
  }

  // Adds what the compressor makes of each token, and an entry for each window that is complete.
  void compress(std::size_t i, const std::string& p, const Tensor& x, std::int64_t d,
                Compressed& past) const {
    const std::int64_t r = ratio(i), first = past.values.size();
    const Tensor phase = at::arange(first, first + x.size(0), at::kLong).remainder(r);
    past.values.append(linear(x, p + "wkv.weight"));
    past.scores.append(linear(x, p + "wgate.weight") +
                       weight(p + "ape").to(at::kDouble).index_select(0, phase));
    const std::int64_t begin = past.entries.size(), end = past.values.size() / r;
    if (begin == end) return;
    const Tensor weights = windows(past.scores, begin, end, r, d, -kInfinite).softmax(1);
    const Tensor pooled = (weights * windows(past.values, begin, end, r, d, 0)).sum(1);
    const Tensor y = rms_norm(pooled, weight(p + "norm.weight")).unsqueeze(1);
    past.entries.append(rotate(y, at::arange(begin, end, at::kLong) * r, i).squeeze(1));
  }

  // What is pooled into entries [begin, end): [entries, tokens, d]. Without overlap the r tokens of
  // the entry's window. With overlap (r = 4) the second half of their channels, behind the first
  // half of those of the window before, which are `missing` where there is none.
  static Tensor windows(const Rows& rows, std::int64_t begin, std::int64_t end, std::int64_t r,
                        std::int64_t d, double missing) {
    const Tensor own = rows.range(begin * r, end * r).view({end - begin, r, -1});
    if (r != 4) return own;
    Tensor before = rows.range(std::max<std::int64_t>(0, begin - 1) * r, (end - 1) * r);
    if (begin == 0) before = at::cat({at::full({r, 2 * d}, missing, at::kDouble), before});
    const Tensor first_half = before.view({end - begin, r, -1}).narrow(2, 0, d);
    return at::cat({first_half, own.narrow(2, d, d)}, 1);
  }

  // The entries that each token attends to, those with the highest scores: [T, entries].
  Tensor select(std::size_t i, const Tensor& x, const Tensor& qr, const Tensor& positions,
                const Rows& keys, ModelLayer& seen) const {
    const std::string p = prefix(i) + "attn.indexer.";
    const std::int64_t T = x.size(0), heads = n_.index_heads, count = keys.size();
    const Tensor may_see = finished(positions, 4, count);
    if (count == 0) return may_see;
    const Tensor q = linear(qr, p + "wq_b.weight").view({T, heads, n_.index_dim});
    const Tensor turned = rotate(q, positions, i);
    const Tensor w =
        linear(x, p + "weights_proj.weight") / std::sqrt(static_cast<double>(n_.index_dim * heads));
    Tensor scores = at::empty({T, count}, at::kDouble);
    for (std::int64_t begin = 0; begin < T; begin += kBlock) {
      const std::int64_t n = std::min(kBlock, T - begin);
      const Tensor queries = turned.narrow(0, begin, n).reshape({n * heads, n_.index_dim});
      const Tensor hits = at::mm(queries, keys.all().t()).relu().view({n, heads, count});
      scores.narrow(0, begin, n).copy_((hits * w.narrow(0, begin, n).unsqueeze(2)).sum(1));
    }
    scores.masked_fill_(~may_see, -kInfinite);
    seen.scores = values_of(scores);
    seen.margin.assign(static_cast<std::size_t>(T), kInfinite);
    Tensor chosen = may_see;
    if (count > n_.index_topk) {
      const auto [best, which] = scores.topk(n_.index_topk + 1, 1);
      const Tensor margin = best.select(1, n_.index_topk - 1) - best.select(1, n_.index_topk);
      seen.margin = values_of(margin.nan_to_num(kInfinite, kInfinite));
      chosen = at::zeros_like(may_see).scatter(1, which.narrow(1, 0, n_.index_topk), true);
      chosen = chosen.logical_and(may_see);
    }
    seen.selected = values_of<bool>(chosen);
    return chosen;
  }

  // Rotates the last channels of x [T, H, D], in pairs of neighbours, by position times frequency:
  // an fp32 product, whose cos and sin are those of a table in fp32.
  Tensor rotate(const Tensor& x, const Tensor& positions, std::size_t i) const {
    const std::int64_t plain = x.size(2) - n_.rope_dim;
    const Tensor angles = at::outer(positions.to(at::kFloat), frequencies(i)).to(at::kDouble);
    const auto listed = [](const Tensor& t) {
      return t.to(at::kFloat).to(at::kDouble).unsqueeze(1);
    };
    const Tensor cos = listed(angles.cos()), sin = listed(angles.sin());
    const Tensor pairs = x.narrow(2, plain, n_.rope_dim).reshape({x.size(0), x.size(1), -1, 2});
    const Tensor even = pairs.select(3, 0), odd = pairs.select(3, 1);
    const Tensor turned = at::stack({even * cos - odd * sin, even * sin + odd * cos}, 3);
    return at::cat({x.narrow(2, 0, plain), turned.flatten(2)}, 2);
  }

  // [rope_dim / 2] in fp32. YaRN divides the slow ones by its factor and blends those between. Each
  // step is rounded to fp32, or only the end.
  Tensor frequencies(std::size_t i) const {
    const auto dim = static_cast<double>(n_.rope_dim);
    const double base = ratio(i) > 0 ? n_.compress_rope_theta : n_.rope_theta;
    const at::ScalarType type = n_.fp32_frequencies ? at::kFloat : at::kDouble;
    const Tensor pair = at::arange(n_.rope_dim / 2, at::kDouble);
    const Tensor f = (pair * (2 / dim * std::log(base))).exp().to(type).reciprocal();
    if (ratio(i) == 0 && !n_.yarn_in_every_layer) return f.to(at::kFloat);
    const auto pair_that_turns = [&](double times) {  // so often in the original length
      return dim * std::log(n_.yarn_original_max / (times * 2 * std::numbers::pi)) /
             (2 * std::log(base));
    };
    const double low = std::max(std::floor(pair_that_turns(n_.yarn_beta_fast)), 0.0);
    double high = std::min(std::ceil(pair_that_turns(n_.yarn_beta_slow)), dim - 1);
    if (high == low) high += 0.001;
    const Tensor stays = 1 - ((pair.to(type) - low) / (high - low)).clamp(0, 1);
    return (f / n_.yarn_factor * (1 - stays) + f * stays).to(at::kFloat);
  }

  // Over the last axis; w undefined = 1.
  Tensor rms_norm(const Tensor& x, const Tensor& w) const {
    const Tensor y = x * (x.square().mean(-1, true) + n_.norm_eps).rsqrt();
    return w.defined() ? y * w : y;
  }

  // x [T, in] by a weight [out, in]; a large one is converted to float64 some rows at a time.
  Tensor linear(const Tensor& x, const std::string& name) const { return linear(x, weight(name)); }
  static Tensor linear(const Tensor& x, const Tensor& w) {
    if (w.scalar_type() == at::kDouble) return at::mm(x, w.t());
    std::vector<Tensor> parts;
    for (const Tensor& rows : w.split(kConvertedRows)) {
      parts.push_back(at::mm(x, rows.to(at::kDouble).t()));
    }
    return at::cat(parts, 1);
  }
  // o [T, G, in] by a weight [G * out, in], each group by its own rows; gives [T, G * out].
  Tensor grouped_linear(const Tensor& o, const std::string& name) const {
    const std::vector<Tensor> groups = weight(name).chunk(n_.o_groups);
    std::vector<Tensor> parts;
    for (std::int64_t g = 0; g < n_.o_groups; ++g) {
      parts.push_back(linear(o.select(1, g), groups[static_cast<std::size_t>(g)]));
    }
    return at::cat(parts, 1);
  }

  // ---- weights, by published name

  std::string prefix(std::size_t i) const { return "layers." + std::to_string(n_.layers[i]) + "."; }
  std::int64_t ratio(std::size_t i) const {
    return n_.compress_ratios[static_cast<std::size_t>(n_.layers[i])];
  }
  const Tensor& weight(const std::string& name) const { return weights_.at(name); }

  void read(const TensorSource& source) {
    const ModelNumbers& n = n_;
    add(source, "embed.weight", {kModelTokens, n.hidden});
    add(source, "norm.weight", {n.hidden});
    for (std::size_t i = 0; i < n.layers.size(); ++i) {
      const std::string p = prefix(i) + "attn.";
      add(source, prefix(i) + "attn_norm.weight", {n.hidden});
      add(source, p + "wq_a.weight", {n.q_lora, n.hidden});
      add(source, p + "q_norm.weight", {n.q_lora});
      add(source, p + "wq_b.weight", {n.heads * n.head_dim, n.q_lora});
      add(source, p + "wkv.weight", {n.head_dim, n.hidden});
      add(source, p + "kv_norm.weight", {n.head_dim});
      add(source, p + "attn_sink", {n.heads});
      add(source, p + "wo_a.weight", {n.o_groups * n.o_lora, n.heads / n.o_groups * n.head_dim});
      add(source, p + "wo_b.weight", {n.hidden, n.o_groups * n.o_lora});
      if (ratio(i) > 0) add_compressor(source, p + "compressor.", ratio(i), n.head_dim);
      if (ratio(i) != 4) continue;
      add_compressor(source, p + "indexer.compressor.", 4, n.index_dim);
      add(source, p + "indexer.wq_b.weight", {n.index_heads * n.index_dim, n.q_lora});
      add(source, p + "indexer.weights_proj.weight", {n.index_heads, n.hidden});
    }
    std::int64_t total = 0;
    for (const auto& [name, w] : weights_) total += w.numel();
    for (auto& [name, w] : weights_) {
      if (total <= kFloat64Weights) w = w.to(at::kDouble);
    }
  }

  void add_compressor(const TensorSource& source, const std::string& p, std::int64_t r,
                      std::int64_t d) {
    const std::int64_t width = r == 4 ? 2 * d : d;
    add(source, p + "wkv.weight", {width, n_.hidden});
    add(source, p + "wgate.weight", {width, n_.hidden});
    add(source, p + "ape", {r, width});
    add(source, p + "norm.weight", {d});
  }

  // Sinks and `ape` are fp32, all else bf16.
  void add(const TensorSource& source, const std::string& name, at::IntArrayRef shape) {
    const Tensor stored = stored_tensor(source, name);
    const bool rows_beyond = name == "embed.weight" && stored.size(0) > shape[0];
    const Tensor t = rows_beyond ? stored.narrow(0, 0, shape[0]) : stored;
    if (t.sizes() != shape) {
      throw std::invalid_argument(name + ": a shape that is not the model's");
    }
    const bool codes = stored.scalar_type() == at::kDouble && name.find("wo_a") == name.npos;
    const bool fp32 = name.ends_with("attn_sink") || name.ends_with("ape");
    Tensor& w = weights_[name];
    w = codes && n_.keep_fp8_values ? t : t.to(fp32 ? at::kFloat : at::kBFloat16);
    if (name.ends_with("attn_sink")) w = w + n_.sink_shift;
  }

  // As the file has it; FP8 codes, which have a scale for each 128 x 128, as their values.
  static Tensor stored_tensor(const TensorSource& source, const std::string& name) {
    const TensorEntry& entry = find(source, name);
    if (entry.type != ElementType::kF8E4m3) return copy_of(entry);
    const std::string scale_name = name.substr(0, name.rfind('.')) + ".scale";
    const TensorEntry& scale = find(source, scale_name);
    Tensor scales = copy_of(scale);
    if (scale.type == ElementType::kF8E8m0) scales = (scales.to(at::kDouble) - 127).exp2();
    const Tensor codes = copy_of(entry).to(at::kLong);
    const Tensor values = e4m3_values().index_select(0, codes.flatten()).view(codes.sizes());
    const Tensor wide = scales.to(at::kDouble).repeat_interleave(128, 0).repeat_interleave(128, 1);
    return values * wide.narrow(0, 0, codes.size(0)).narrow(1, 0, codes.size(1));
  }

  static const TensorEntry& find(const TensorSource& source, const std::string& name) {
    const TensorEntry* entry = source(name);
    if (entry == nullptr) throw std::invalid_argument(name + ": the model has no such tensor");
    return *entry;
  }

  static Tensor copy_of(const TensorEntry& entry) {
    at::ScalarType type = at::kByte;  // codes
    if (entry.type == ElementType::kBf16) type = at::kBFloat16;
    if (entry.type == ElementType::kF32) type = at::kFloat;
    Tensor t = at::empty(entry.shape, type);
    if (t.nbytes() != entry.bytes) throw std::invalid_argument(entry.name + ": no type of weights");
    std::memcpy(t.data_ptr(), entry.data, entry.bytes);
    return t;
  }

  // By code: sign, 4 bits of exponent with bias 7, 3 of mantissa; all ones is no number.
  static Tensor e4m3_values() {
    Tensor values = at::empty({256}, at::kDouble);
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, mantissa = code & 7;
      const double size =
          exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      const double value = (code & 127) == 127 ? std::nan("") : size;
      values[code] = code < 128 ? value : -value;
    }
    return values;
  }

  ModelNumbers n_;
  std::map<std::string, Tensor> weights_;
};

// The border: what libtorch throws becomes an error here.
class TorchModel : public ModelReference {
 public:
  TorchModel(const ModelNumbers& numbers, const TensorSource& source) : model_(numbers, source) {}

  Result<ModelOutput> step(std::int64_t request, std::span<const std::int32_t> tokens) override {
    try {
      const c10::InferenceMode inference;
      return model_.forward(requests_[request], tokens);
    } catch (const std::exception& e) {
      cut(request, length(request));  // what some layers have of these tokens
      return internal_error(std::string("ref.model: ") + e.what());
    }
  }
  std::int64_t length(std::int64_t request) const override {
    const auto it = requests_.find(request);
    return it == requests_.end() ? 0 : it->second.length;
  }
  void cut(std::int64_t request, std::int64_t length) override {
    const auto it = requests_.find(request);
    if (it != requests_.end()) model_.cut(it->second, length);
  }

 private:
  Model model_;
  std::map<std::int64_t, Past> requests_;
};

}  // namespace

Result<std::unique_ptr<ModelReference>> make_torch_model(const ModelNumbers& numbers,
                                                         const TensorSource& source) {
  try {
    const c10::InferenceMode inference;
    std::unique_ptr<ModelReference> model = std::make_unique<TorchModel>(numbers, source);
    return model;
  } catch (const std::exception& e) {
    return bad_input(std::string("ref.model: ") + e.what(), "see `model tensors`");
  }
}

}  // namespace attnscope::reference
