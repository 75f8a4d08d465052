// Attention of dense models: gather the rows of a request, mask, softmax, weigh. Whole heads at
// once; nothing is split or merged.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/params/row_format.h"
#include "reference/kv_rows.h"
#include "reference/matmul.h"
#include "reference/ops.h"
#include "reference/slots.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

using Vector = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Dense {
 public:
  Dense(const as_paged_attention_params& p, const Precision& precision)
      : p_(p),
        precision_(precision),
        q_(p.q, "q", {kAny, kAny, kAny}),
        o_(p.o, "o", {q_.size(0), q_.size(1), kAny}),
        lse_(p.lse, "lse", {q_.size(0), q_.size(1)}),
        kv_heads_(as_cache_heads(&p.k_cache)),
        k_(p.k_cache, "k_cache", kv_heads_, q_.size(2)),
        v_(p.v_cache, "v_cache", kv_heads_, o_.size(2)),
        table_(as_one_group(p.table), "table", {1, kAny, kAny}),
        token_to_req_(p.token_to_req, "token_to_req", {q_.size(0)}),
        positions_(p.positions, "positions", {q_.size(0)}),
        seq_lens_(p.seq_lens, "seq_lens", {table_.size(1)}) {
    if (q_.size(1) % kv_heads_ != 0) {
      throw BadInput("q has " + std::to_string(q_.size(1)) + " heads, k_cache " +
                     std::to_string(kv_heads_) + "; the first must be a multiple of the second");
    }
    if (p.causal == 0 && p.window > 0) throw BadInput("a window needs causal to be 1");
    if (present(p.sinks)) sinks_ = FloatRows(p.sinks, "sinks", {q_.size(1)}).load_all();
  }

  void run() {
    for (std::int64_t t = 0; t < q_.size(0); ++t) attend(t);
  }

 private:
  // The positions that a token sees.
  std::vector<std::int64_t> seen(std::int64_t token, std::int64_t request) const {
    std::vector<std::int64_t> rows;
    const std::int64_t position = positions_.get(token);
    for (std::int64_t row = 0; row < seq_lens_.get(request); ++row) {
      const bool future = p_.causal != 0 && row > position;
      const bool too_old = p_.window > 0 && position - row >= p_.window;
      if (!future && !too_old) rows.push_back(row);
    }
    return rows;
  }

  void attend(std::int64_t t) {
    const std::int64_t request = token_to_req_.get(t);
    std::vector<std::int64_t> rows;
    if (request >= 0) {
      check_index(request, table_.size(1), "row of the table", t);
      rows = seen(t, request);
    }
    std::vector<Vector> keys, values;
    for (std::int64_t row : rows) {
      const std::int64_t slot = slot_of(table_, 0, request, row, 0, t);
      keys.push_back(k_.load(slot, t));
      values.push_back(v_.load(slot, t));
    }
    for_rows(q_.size(1), 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t h = first; h < last; ++h) attend_head(t, h, keys, values);
    });
  }

  void attend_head(std::int64_t t, std::int64_t h, const std::vector<Vector>& keys,
                   const std::vector<Vector>& values) const {
    const auto size = static_cast<std::size_t>(q_.size(2));
    const auto size_v = static_cast<std::size_t>(o_.size(2));
    const auto g = static_cast<std::size_t>(h / (q_.size(1) / kv_heads_));
    Vector query(size);
    q_.load(t * q_.size(1) + h, query.data());

    // l_i = scale * q . k_i, softly capped
    Vector logits;
    double most = -kInfinity;
    for (const Vector& key : keys) {
      double dot = 0;
      for (std::size_t d = 0; d < size; ++d) {
        dot = precision_.sum(dot + query[d] * key[g * size + d]);
      }
      double logit = p_.scale * dot;
      if (p_.soft_cap > 0) logit = p_.soft_cap * std::tanh(logit / p_.soft_cap);
      logits.push_back(logit);
      most = std::fmax(most, logit);
    }
    if (most == -kInfinity) most = 0;

    // softmax with the sink in the denominator alone
    double sum = 0;
    for (double& l : logits) {
      l = std::exp(l - most);
      sum = precision_.sum(sum + l);
    }
    const double sink = sinks_.empty() ? -kInfinity : sinks_[static_cast<std::size_t>(h)];
    const double denominator = sum + std::exp(sink - most);
    Vector out(size_v, 0.0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (std::size_t d = 0; d < size_v; ++d) {
        out[d] = precision_.sum(out[d] + logits[i] / denominator * values[i][g * size_v + d]);
      }
    }
    const double lse = precision_.fp32(keys.empty() ? -kInfinity : most + std::log(sum));
    precision_.bf16(out.data(), o_.size(2));
    o_.store(t * q_.size(1) + h, out.data());
    lse_.store(t, h, 1, &lse);
  }

  const as_paged_attention_params& p_;
  Precision precision_;
  FloatRows q_, o_, lse_;
  std::int64_t kv_heads_;
  KvRows k_, v_;
  Integers table_, token_to_req_, positions_, seq_lens_;
  Vector sinks_;
};

}  // namespace

void paged_attention(const as_paged_attention_params& p, const Precision& precision) {
  Dense(p, precision).run();
}

}  // namespace attnscope::reference
