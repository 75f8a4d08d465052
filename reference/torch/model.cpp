#include "reference/torch/model.h"

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

using at::Tensor;

// Of a weight at a time, by the host and by a GPU.
constexpr std::int64_t kConvertedRows = 256, kConvertedRowsOfGpu = 1 << 14;
constexpr std::int64_t kBlock = 32;       // tokens at a time in attention
constexpr std::int64_t kStepsBack = 128;  // tokens whose rows stay beside those that are read
constexpr double kInfinite = std::numeric_limits<double>::infinity();

at::TensorOptions on_device(at::ScalarType type) {
  return at::TensorOptions(torch_device()).dtype(type);
}

// [begin, end)
Tensor counted(std::int64_t begin, std::int64_t end) {
  return at::arange(begin, end, on_device(at::kLong));
}

// Rows of a history, by position: they grow at the end and may be cut there. The oldest may be let
// go of.
class Rows {
 public:
  void append(const Tensor& rows) {
    const std::int64_t held = size_ - first_, needed = held + rows.size(0);
    if (!storage_.defined() || needed > storage_.size(0)) keep(held, needed + needed / 4, rows);
    storage_.narrow(0, held, rows.size(0)).copy_(rows);
    size_ += rows.size(0);
  }
  // False where a row before `from` that is to stay is not there.
  bool cut(std::int64_t size, std::int64_t from) {
    size_ = std::min(size_, size);
    return size_ >= first_ && (size_ <= from || from >= first_);
  }
  // Rows before `from` will not be asked for. They go once they are the most of what is held.
  void let_go(std::int64_t from) {
    if (!storage_.defined()) return;
    const std::int64_t held = size_ - from;
    if (from - first_ > std::max(held, kFewest)) keep(held, held + held / 4, storage_);
  }
  std::int64_t size() const { return size_; }
  Tensor all() const { return range(first_, size_); }
  Tensor range(std::int64_t begin, std::int64_t end) const {
    return storage_.narrow(0, begin - first_, end - begin);
  }

 private:
  static constexpr std::int64_t kFewest = 64;

  // The last `held` rows in memory for so many, which is like that of `like`.
  void keep(std::int64_t held, std::int64_t room, const Tensor& like) {
    const Tensor other = at::empty({std::max(room, kFewest), like.size(1)}, like.options());
    if (held > 0) other.narrow(0, 0, held).copy_(range(size_ - held, size_));
    storage_ = other;
    first_ = size_ - held;
  }

  Tensor storage_;
  std::int64_t first_ = 0, size_ = 0;  // positions held: [first_, size_)
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

// The tokens of one request among those of a step.
struct Part {
  Past* past = nullptr;
  std::int64_t begin = 0, count = 0;

  Tensor of(const Tensor& rows) const { return rows.narrow(0, begin, count); }
};

std::vector<double> values_of(const Tensor& t) {
  const Tensor dense = t.cpu().contiguous();
  const double* data = dense.data_ptr<double>();
  return std::vector<double>(data, data + dense.numel());
}

class Model {
 public:
  Model(const ModelNumbers& numbers, const TensorSource& source) : n_(numbers) { read(source); }

  // ids [T]: of all parts, one behind the other; next [T]: what follows each of them.
  ModelOutput forward(std::span<const Part> parts, const Tensor& ids, const Tensor& next) const {
    std::vector<Tensor> all;
    for (const Part& part : parts) {
      part.past->layers.resize(n_.layers.size());
      const std::int64_t first = part.past->length;
      all.push_back(counted(first, first + part.count));
    }
    const Tensor positions = at::cat(all), embedding = weight("embed.weight").to(at::kDouble);
    ModelOutput out;
    Tensor h = embedding.index_select(0, ids);
    const std::size_t main = n_.layers.size() - static_cast<std::size_t>(n_.draft_layers);
    const auto block = [&](std::size_t i, const Tensor& in) {
      ModelLayer& seen = out.layers.emplace_back();
      const Tensor x = rms_norm(in, weight(prefix(i) + "attn_norm.weight"));
      const Tensor y = in + attention(i, x, positions, parts, seen);
      seen.hidden = values_of(y);
      return y;
    };
    for (std::size_t i = 0; i < main; ++i) h = block(i, h);
    if (main < n_.layers.size()) {
      const std::string p = prefix(main);
      // Behind the last token, and for the first position, there is a row of zeros.
      const Tensor none = next.lt(0).logical_or(positions.eq(0)).unsqueeze(1);
      const Tensor e = embedding.index_select(0, next.clamp_min(0)).masked_fill(none, 0);
      const Tensor drafted =
          block(main, linear(rms_norm(h, weight(p + "hnorm.weight")), p + "h_proj.weight") +
                          linear(rms_norm(e, weight(p + "enorm.weight")), p + "e_proj.weight"));
      out.drafted = values_of(at::mm(rms_norm(drafted, weight(p + "norm.weight")), embedding.t()));
    }
    for (const Part& part : parts) {
      part.past->length += part.count;
      let_go(*part.past);
    }
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

  std::int64_t others(const std::string& name, std::int64_t row, std::int64_t column,
                      const TensorEntry& given, const TensorEntry* scale) const {
    Tensor w = weight(name);
    const Tensor values =
        (scale != nullptr ? decoded(given, *scale) : in_place(given)).to(w.device());
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
    all.reserve(weights_.size());
    for (const auto& [name, w] : weights_) all.push_back(name);
    return all;
  }

  // Where rows are missing that the next token would ask for, nothing stays.
  void cut(Past& past, std::int64_t length) const {
    length = past.length = std::min(past.length, length);
    bool whole = true;
    for (std::size_t i = 0; i < past.layers.size(); ++i) {
      whole = past.layers[i].latent.cut(length, oldest_row(length)) && whole;
      for (Compressed* c : {&past.layers[i].main, &past.layers[i].index}) {
        whole = c->values.cut(length, oldest_pooled(i, length)) && whole;
        whole = c->scores.cut(length, oldest_pooled(i, length)) && whole;
        if (ratio(i) > 0) (void)c->entries.cut(length / ratio(i), 0);
      }
    }
    if (!whole) past = {};
  }

  // What a token at `length` reads first: of its window, and of what is pooled into its entry.
  std::int64_t oldest_row(std::int64_t length) const {
    return std::max<std::int64_t>(0, length - n_.window + 1);
  }
  std::int64_t oldest_pooled(std::size_t i, std::int64_t length) const {
    const std::int64_t r = ratio(i);
    return r > 0 ? std::max<std::int64_t>(0, length / r - 1) * r : length;
  }

  // What a session that goes back a few steps asks for stays; more is computed anew.
  void let_go(Past& past) const {
    const std::int64_t length = std::max<std::int64_t>(0, past.length - kStepsBack);
    for (std::size_t i = 0; i < past.layers.size(); ++i) {
      past.layers[i].latent.let_go(oldest_row(length));
      for (Compressed* c : {&past.layers[i].main, &past.layers[i].index}) {
        c->values.let_go(oldest_pooled(i, length));
        c->scores.let_go(oldest_pooled(i, length));
      }
    }
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

 private:
  // x [T, hidden], normalised; gives [T, hidden].
  Tensor attention(std::size_t i, const Tensor& x, const Tensor& positions,
                   std::span<const Part> parts, ModelLayer& seen) const {
    const std::int64_t T = x.size(0), ratio = this->ratio(i);
    const std::string p = prefix(i) + "attn.";
    const Tensor qr = rms_norm(linear(x, p + "wq_a.weight"), weight(p + "q_norm.weight"));
    const Tensor kv = rms_norm(linear(x, p + "wkv.weight"), weight(p + "kv_norm.weight"));
    const Tensor q_raw = linear(qr, p + "wq_b.weight").view({T, n_.heads, n_.head_dim});
    const Tensor q = rotate(rms_norm(q_raw, {}), positions, i);
    const Tensor latent = rotate(kv.unsqueeze(1), positions, i).squeeze(1);
    for (const Part& part : parts) part.past->layers[i].latent.append(part.of(latent));
    if (ratio > 0) compress(i, p + "compressor.", x, n_.head_dim, parts, &LayerPast::main);
    std::vector<Tensor> chosen;  // by part
    if (ratio == 4) {
      compress(i, p + "indexer.compressor.", x, n_.index_dim, parts, &LayerPast::index);
      chosen = select(i, x, qr, positions, parts, seen);
    } else {
      for (const Part& part : parts) {
        const std::int64_t entries = part.past->layers[i].main.entries.size();
        chosen.push_back(finished(part.of(positions), ratio, entries));
      }
    }
    const Tensor scaled = q.div_(std::sqrt(static_cast<double>(n_.head_dim)));
    const Tensor sinks = weight(p + "attn_sink").to(at::kDouble).unsqueeze(1);
    Tensor o = at::empty_like(q);
    for (std::size_t k = 0; k < parts.size(); ++k) {
      for (std::int64_t begin = 0; begin < parts[k].count; begin += kBlock) {
        const std::int64_t n = std::min(kBlock, parts[k].count - begin);
        const std::int64_t row = parts[k].begin + begin, now = parts[k].past->length + begin;
        o.narrow(0, row, n).copy_(attend(scaled.narrow(0, row, n), now, parts[k].past->layers[i],
                                         chosen[k].narrow(0, begin, n), sinks));
      }
    }
    const Tensor turned = rotate(o, -positions, i).view({T, n_.o_groups, -1});
    return linear(grouped_linear(turned, p + "wo_a.weight"), p + "wo_b.weight");
  }

  // Which of so many entries each token may see: [T, entries], those whose tokens are all there.
  static Tensor finished(const Tensor& positions, std::int64_t ratio, std::int64_t entries) {
    const Tensor last = counted(1, entries + 1) * ratio - 1;
    return last.le(positions.unsqueeze(1));
  }

  // q [T, H, D], times 1/sqrt(D), of the tokens from position `now` on, over the rows of their
  // window and the chosen entries [T, entries], which are keys and values. A sink takes its share
  // and gives nothing.
  Tensor attend(const Tensor& q, std::int64_t now, const LayerPast& past, const Tensor& chosen,
                const Tensor& sinks) const {
    const std::int64_t T = q.size(0), H = q.size(1), D = q.size(2);
    const Tensor t = counted(now, now + T).unsqueeze(1);
    const std::int64_t oldest = std::max<std::int64_t>(0, now - n_.window + 1);
    const Tensor key = counted(oldest, now + T);
    std::vector<Tensor> rows, mask;
    rows.reserve(2);
    mask.reserve(2);
    rows.push_back(past.latent.range(oldest, now + T));
    mask.push_back(key.le(t).logical_and(key.gt(t - n_.window)));
    if (const Tensor used = chosen.any(0).nonzero().squeeze(1); used.numel() > 0) {
      const std::int64_t n = used[-1].item<std::int64_t>() + 1;
      const bool most = 4 * used.numel() > 3 * n;  // then a copy costs more than it saves
      const Tensor entries = past.main.entries.range(0, n);
      rows.push_back(most ? entries : entries.index_select(0, used));
      mask.push_back(most ? chosen.narrow(1, 0, n) : chosen.index_select(1, used));
    }
    const Tensor queries = q.reshape({T * H, D}), seen = at::cat(mask, 1);
    const Tensor logits = at::empty({T * H, seen.size(1)}, q.options());
    std::int64_t column = 0;
    for (const Tensor& r : rows) {
      Tensor part = logits.narrow(1, column, r.size(0));
      at::mm_out(part, queries, r.t());
      column += r.size(0);
    }
    const Tensor l = logits.view({T, H, -1});
    l.masked_fill_(seen.logical_not().unsqueeze(1), -kInfinite);
    // One that takes all is beyond every logit: nothing is left then, which inf - inf would not
    // say.
    const Tensor finite = sinks.masked_fill(sinks.isposinf(), -kInfinite);
    const Tensor top = at::maximum(l.amax(2, true), finite);
    const Tensor e = l.sub_(top).exp_();
    const Tensor flat = e.view({T * H, -1});
    Tensor sum = at::mm(flat.narrow(1, 0, rows[0].size(0)), rows[0]);
    if (rows.size() > 1) sum.addmm_(flat.narrow(1, rows[0].size(0), rows[1].size(0)), rows[1]);
    return sum.view({T, H, D}).div_(e.sum(2, true) + (sinks - top).exp());
  }

  // Adds what the compressor makes of each token, and an entry for each window that is complete.
  void compress(std::size_t i, const std::string& p, const Tensor& x, std::int64_t d,
                std::span<const Part> parts, Compressed LayerPast::*which) const {
    const std::int64_t r = ratio(i);
    const Tensor values = linear(x, p + "wkv.weight"), gates = linear(x, p + "wgate.weight");
    const Tensor ape = weight(p + "ape").to(at::kDouble);
    for (const Part& part : parts) {
      Compressed& past = part.past->layers[i].*which;
      const std::int64_t first = past.values.size();
      const Tensor phase = counted(first, first + part.count).remainder(r);
      past.values.append(part.of(values));
      past.scores.append(part.of(gates) + ape.index_select(0, phase));
      const std::int64_t begin = past.entries.size(), end = past.values.size() / r;
      if (begin == end) continue;
      const Tensor weights = windows(past.scores, begin, end, r, d, -kInfinite).softmax(1);
      const Tensor pooled = (weights * windows(past.values, begin, end, r, d, 0)).sum(1);
      const Tensor y = rms_norm(pooled, weight(p + "norm.weight")).unsqueeze(1);
      past.entries.append(rotate(y, counted(begin, end) * r, i).squeeze(1));
    }
  }

  // What is pooled into entries [begin, end): [entries, tokens, d]. Without overlap the r tokens of
  // the entry's window. With overlap (r = 4) the second half of their channels, behind the first
  // half of those of the window before, which are `missing` where there is none.
  static Tensor windows(const Rows& rows, std::int64_t begin, std::int64_t end, std::int64_t r,
                        std::int64_t d, double missing) {
    Tensor own = rows.range(begin * r, end * r).view({end - begin, r, -1});
    if (r != 4) return own;
    Tensor before = rows.range(std::max<std::int64_t>(0, begin - 1) * r, (end - 1) * r);
    if (begin == 0) before = at::cat({at::full({r, 2 * d}, missing, before.options()), before});
    const Tensor first_half = before.view({end - begin, r, -1}).narrow(2, 0, d);
    return at::cat({first_half, own.narrow(2, d, d)}, 1);
  }

  // The entries that each token attends to, those with the highest scores: by part [n, entries].
  std::vector<Tensor> select(std::size_t i, const Tensor& x, const Tensor& qr,
                             const Tensor& positions, std::span<const Part> parts,
                             ModelLayer& seen) const {
    const std::string p = prefix(i) + "attn.indexer.";
    const std::int64_t T = x.size(0), heads = n_.index_heads, d = n_.index_dim;
    const Tensor q_raw = linear(qr, p + "wq_b.weight").view({T, heads, d});
    const Tensor q = rotate(q_raw, positions, i);
    const Tensor w =
        linear(x, p + "weights_proj.weight") / std::sqrt(static_cast<double>(d * heads));
    std::vector<Tensor> chosen;
    for (const Part& part : parts) {
      const Rows& keys = part.past->layers[i].index.entries;
      const std::int64_t count = keys.size();
      const Tensor may_see = finished(part.of(positions), 4, count);
      ModelChoice& choice = seen.choices.emplace_back();
      chosen.push_back(may_see);
      if (count == 0) continue;
      Tensor scores = at::empty({part.count, count}, q.options());
      for (std::int64_t begin = 0; begin < part.count; begin += kBlock) {
        const std::int64_t n = std::min(kBlock, part.count - begin), row = part.begin + begin;
        const Tensor queries = q.narrow(0, row, n).reshape({n * heads, d});
        const Tensor hits = at::mm(queries, keys.all().t()).relu_().view({n, heads, count});
        const Tensor sums = at::bmm(w.narrow(0, row, n).unsqueeze(1), hits);
        scores.narrow(0, begin, n).copy_(sums.squeeze(1));
      }
      // What is no number never wins over one.
      scores.masked_fill_(may_see.logical_not().logical_or_(scores.isnan()), -kInfinite);
      choice.entries = count;
      choice.scores = values_of(scores);
      const Tensor best = may_see.cpu();
      choose(choice, part.count, best);
      chosen.back() = best.to(may_see.device());
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
      // NaN behind all numbers: without that it would be no order.
      const auto before = [s](std::int64_t a, std::int64_t b) {
        const bool no_a = std::isnan(s[a]), no_b = std::isnan(s[b]);
        if (no_a != no_b) return no_b;
        return !no_a && s[a] != s[b] ? s[a] > s[b] : a < b;
      };
      order.resize(static_cast<std::size_t>(seen));
      std::iota(order.begin(), order.end(), 0);
      const auto next = order.begin() + top;
      std::nth_element(order.begin(), next, order.end(), before);
      const double last = s[*std::max_element(order.begin(), next, before)];
      choice.margin[static_cast<std::size_t>(t)] = last - s[*next];
      for (auto left = next; left != order.end(); ++left) chosen[*left] = false;
    }
    choice.selected.assign(may_see.data_ptr<bool>(), may_see.data_ptr<bool>() + n * count);
  }

  // Rotates the last channels of x [T, H, D], in pairs of neighbours, by position times frequency:
  // an fp32 product, whose cos and sin are those of a table in fp32. Gives x, changed.
  Tensor rotate(const Tensor& x, const Tensor& positions, std::size_t i) const {
    const Tensor turns = frequencies(i).to(x.device());
    const Tensor angles = at::outer(positions.to(at::kFloat), turns).to(at::kDouble);
    const auto listed = [](const Tensor& t) {
      return t.to(at::kFloat).to(at::kDouble).unsqueeze(1);
    };
    const Tensor cos = listed(angles.cos()), sin = listed(angles.sin());
    const Tensor last = x.narrow(2, x.size(2) - n_.rope_dim, n_.rope_dim);
    const Tensor even = last.slice(2, 0, n_.rope_dim, 2).clone();
    const Tensor odd = last.slice(2, 1, n_.rope_dim, 2).clone();
    last.slice(2, 0, n_.rope_dim, 2).copy_(even * cos - odd * sin);
    last.slice(2, 1, n_.rope_dim, 2).copy_(even * sin + odd * cos);
    return x;
  }

  // Over the last axis; w undefined = 1.
  Tensor rms_norm(const Tensor& x, const Tensor& w) const {
    const Tensor length = at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, true);
    const Tensor mean = length.square_().div_(x.size(-1));
    const Tensor y = x * mean.add_(n_.norm_eps).rsqrt_();
    return w.defined() ? y.mul_(w) : y;
  }

  // x [T, in] by a weight [out, in], which is converted to float64 some rows at a time: nothing is
  // kept beside what was read.
  Tensor linear(const Tensor& x, const std::string& name) const { return linear(x, weight(name)); }
  static Tensor linear(const Tensor& x, const Tensor& w) {
    std::vector<Tensor> parts;
    for (const Tensor& rows : w.split(w.is_cpu() ? kConvertedRows : kConvertedRowsOfGpu)) {
      parts.push_back(at::mm(x, rows.to(at::kDouble).t()));
    }
    return at::cat(parts, 1);
  }
  // o [T, G, in] by a weight [G * out, in], each group by its own rows; gives [T, G * out].
  Tensor grouped_linear(const Tensor& o, const std::string& name) const {
    const std::vector<Tensor> groups = weight(name).chunk(n_.o_groups);
    std::vector<Tensor> parts;
    parts.reserve(groups.size());
    for (std::int64_t g = 0; g < n_.o_groups; ++g) {
      parts.push_back(linear(o.select(1, g), groups[static_cast<std::size_t>(g)]));
    }
    return at::cat(parts, 1);
  }

  // ---- weights, by published name

  std::string prefix(std::size_t i) const {
    const bool drafts = i + static_cast<std::size_t>(n_.draft_layers) >= n_.layers.size();
    return drafts ? "mtp.0." : "layers." + std::to_string(n_.layers[i]) + ".";
  }
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
      if (prefix(i).starts_with("mtp.")) {
        for (const char* norm : {"enorm", "hnorm", "norm"}) {
          add(source, prefix(i) + norm + ".weight", {n.hidden});
        }
        add(source, prefix(i) + "e_proj.weight", {n.hidden, n.hidden});
        add(source, prefix(i) + "h_proj.weight", {n.hidden, n.hidden});
      }
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
    const TensorEntry& entry = find(source, name);
    const bool in_codes = entry.type == ElementType::kF8E4m3;
    const Tensor stored =
        in_codes ? decoded(entry, find(source, name.substr(0, name.rfind('.')) + ".scale"))
                 : in_place(entry);
    const bool rows_beyond = name == "embed.weight" && stored.size(0) > shape[0];
    const Tensor t = rows_beyond ? stored.narrow(0, 0, shape[0]) : stored;
    if (t.sizes() != shape) {
      throw std::invalid_argument(name + ": a shape that is not the model's");
    }
    const bool fp32 = name.ends_with("attn_sink") || name.ends_with("ape");
    Tensor& w = weights_[name];
    w = fp32 ? t.to(at::kFloat) : to_bf16(t);
    // Products of codes and scales that bf16 does not hold.
    const bool wo_a = name.find("wo_a") != name.npos;
    const bool keeps = in_codes && (wo_a ? n_.keep_fp8_output : n_.keep_fp8_values);
    if (keeps && !at::equal(w.to(at::kDouble), t)) w = t;
    w = w.to(torch_device());
    if (!name.ends_with("attn_sink")) return;
    w = w + n_.sink_shift;
    for (const auto& [head, sink] : n_.sinks) w.select(0, head).fill_(sink);
  }

  static const TensorEntry& find(const TensorSource& source, const std::string& name) {
    const TensorEntry* entry = source(name);
    if (entry == nullptr) throw std::invalid_argument(name + ": the model has no such tensor");
    return *entry;
  }

  // Of FP8 codes, which have a scale for each 128 x 128: their values.
  static Tensor decoded(const TensorEntry& entry, const TensorEntry& scale) {
    Tensor scales = in_place(scale);
    if (scale.type == ElementType::kF8E8m0) scales = (scales.to(at::kDouble) - 127).exp2();
    const Tensor codes = in_place(entry).to(at::kLong);
    const Tensor values = e4m3_values().index_select(0, codes.flatten()).view(codes.sizes());
    const Tensor wide = scales.to(at::kDouble).repeat_interleave(128, 0).repeat_interleave(128, 1);
    return values * wide.narrow(0, 0, codes.size(0)).narrow(1, 0, codes.size(1));
  }

  // Float64 has more than bf16 can be told in two roundings: eight bits of mantissa in one, fewer
  // where bf16 is denormal.
  static Tensor to_bf16(const Tensor& t) {
    if (t.scalar_type() != at::kDouble) return t.to(at::kBFloat16);
    const Tensor step = (std::get<1>(at::frexp(t)) - 8).clamp_min(-133).to(at::kDouble).exp2();
    return at::where(t.isfinite(), (t / step).round() * step, t).to(at::kBFloat16);
  }

  // As the file has it; codes as bytes.
  static Tensor in_place(const TensorEntry& entry) {
    at::ScalarType type = at::kByte;
    if (entry.type == ElementType::kBf16) type = at::kBFloat16;
    if (entry.type == ElementType::kF16) type = at::kHalf;
    if (entry.type == ElementType::kF32) type = at::kFloat;
    if (entry.type == ElementType::kF64) type = at::kDouble;
    if (static_cast<std::size_t>(entry.elements) * c10::elementSize(type) != entry.bytes) {
      throw std::invalid_argument(entry.name + ": no type of weights");
    }
    if (reinterpret_cast<std::uintptr_t>(entry.data) % c10::elementSize(type) == 0) {
      return at::from_blob(const_cast<std::uint8_t*>(entry.data), entry.shape, type);
    }
    Tensor t = at::empty(entry.shape, type);
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
  TorchModel(const ModelNumbers& numbers, const TensorSource& source,
             std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), model_(numbers, source) {}

  Result<ModelOutput> step(std::span<const ModelRows> rows) override {
    try {
      const c10::InferenceMode inference;
      one_thread_beside_gpu();
      own_stream();
      std::vector<Part> parts;
      std::vector<std::int64_t> ids, next;
      for (const ModelRows& r : rows) {
        const auto begin = static_cast<std::int64_t>(ids.size());
        ids.insert(ids.end(), r.tokens.begin(), r.tokens.end());
        next.insert(next.end(), r.next.begin(), r.next.end());
        next.resize(ids.size(), -1);
        parts.push_back({&requests_[r.request], begin, std::ssize(r.tokens)});
      }
      return model_.forward(parts, at::tensor(ids).to(torch_device()),
                            at::tensor(next).to(torch_device()));
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
    const auto it = requests_.find(request);
    if (it != requests_.end()) model_.cut(it->second, length);
  }

  std::vector<std::string> weights() const override { return model_.names(); }
  std::int64_t others(const std::string& weight, std::int64_t row, std::int64_t column,
                      const TensorEntry& given, const TensorEntry* scale) const override {
    const c10::InferenceMode inference;
    return model_.others(weight, row, column, given, scale);
  }
  std::vector<double> frequencies(std::size_t layer) const override {
    const c10::InferenceMode inference;
    return values_of(model_.frequencies(layer).to(at::kDouble));
  }

 private:
  std::shared_ptr<const void> owner_;
  Model model_;
  std::map<std::int64_t, Past> requests_;
};

}  // namespace

Result<std::unique_ptr<ModelReference>> make_torch_model(const ModelNumbers& numbers,
                                                         const TensorSource& source,
                                                         std::shared_ptr<const void> owner) {
  try {
    const c10::InferenceMode inference;
    std::unique_ptr<ModelReference> model =
        std::make_unique<TorchModel>(numbers, source, std::move(owner));
    return model;
  } catch (const std::exception& e) {
    if (is_out_of_memory(e)) return error_of("ref.model", e);
    return bad_input(std::string("ref.model: ") + e.what(), "see `model tensors`");
  }
}

}  // namespace attnscope::reference
