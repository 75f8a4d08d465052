// Scores of the compressed entries that a token sees:
// logits[t,c] = sum_j relu(q_j . k_c) * weights_j.
#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/layout/records.h"
#include "reference/codec.h"
#include "reference/matmul.h"
#include "reference/ops.h"
#include "reference/rows.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

constexpr std::int64_t kMaxDots = std::int64_t{8} << 20;  // dot products of one block: 64 MB
constexpr std::int64_t kGrain = 64;                       // rows of a thread at least

// Index queries in any of their forms, decoded.
class Queries {
 public:
  Queries(const as_indexer_logits_params& p, std::int64_t tokens, std::int64_t heads) {
    if (p.q.dtype != AS_U8) {
      plain_.emplace(p.q, "q", Shape{tokens, heads, AS_INDEX_DIM});
    } else if (present(p.q_scale)) {
      codes_.emplace(p.q, "q", Shape{tokens, heads, AS_INDEX_DIM / 2});
      scales_.emplace(p.q_scale, "q_scale", Shape{tokens, heads, AS_INDEX_DIM / AS_MXFP4_BLOCK});
    } else {
      codes_.emplace(p.q, "q", Shape{tokens, heads, AS_INDEX_DIM});
    }
  }

  // FP8 codes stand for themselves: their scale is in the head weights.
  void load(std::int64_t t, std::int64_t heads, std::int64_t j, double* values) const {
    if (plain_) {
      plain_->load(t * heads + j, values);
    } else if (scales_) {
      decode_mxfp4(codes_->row(t, j), scales_->row(t, j), AS_INDEX_DIM, values);
    } else {
      const std::uint8_t* codes = codes_->row(t, j);
      for (int i = 0; i < AS_INDEX_DIM; ++i) values[i] = e4m3_value(codes[i]);
    }
  }

 private:
  std::optional<FloatRows> plain_;
  std::optional<Bytes> codes_;
  std::optional<Bytes> scales_;
};

}  // namespace

void indexer_logits(const as_indexer_logits_params& p, const Precision& precision) {
  const FloatRows weights(p.weights, "weights", {kAny, kAny});
  const std::int64_t tokens = weights.size(0);
  const std::int64_t heads = weights.size(1);
  const Queries queries(p, tokens, heads);
  const CacheRows cache(p.cache, "cache", kAnyIndexRecord, AS_INDEX_DIM);
  const Integers table(p.table, "table", {kAny, kAny});
  const Integers token_to_req(p.token_to_req, "token_to_req", {tokens});
  const Integers lens(p.lens, "lens", {tokens});
  const FloatRows logits(p.logits, "logits", {tokens, kAny});

  check_rule("score rule", p.weights.reserved, AS_SCORES_BF16);
  const bool bf16 = p.weights.reserved == AS_SCORES_BF16 && !precision.exact;
  const auto step = [bf16](double value) { return bf16 ? round_to_bf16(value) : value; };

  std::vector<double> q;
  std::vector<double> keys;
  std::vector<double> dots;
  for (std::int64_t first = 0; first < tokens;) {
    if (lens.get(first) <= 0) {
      ++first;
      continue;
    }
    // A block: neighbouring tokens of one request, as many as their dot products may take.
    const std::int64_t request = token_to_req.get(first);
    check_index(request, table.size(0), "request", first);
    std::int64_t end = first;
    std::int64_t entries = 0;
    while (end < tokens && token_to_req.get(end) == request) {
      const std::int64_t grown = std::max(entries, lens.get(end));
      if (end > first && (end - first + 1) * heads * grown > kMaxDots) break;
      check_index(lens.get(end), logits.cols() + 1, "number of visible entries", end);
      entries = grown;
      ++end;
    }
    keys.resize(static_cast<std::size_t>(entries * AS_INDEX_DIM));
    const std::int64_t base = table.get(request, 0);
    for_rows(entries, kGrain, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t c = from; c < to; ++c) {
        cache.load(base + c, first, keys.data() + c * AS_INDEX_DIM);
      }
    });
    const std::int64_t rows = (end - first) * heads;
    q.resize(static_cast<std::size_t>(rows * AS_INDEX_DIM));
    for_rows(rows, kGrain, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t i = from; i < to; ++i) {
        queries.load(first + i / heads, heads, i % heads, q.data() + i * AS_INDEX_DIM);
      }
    });
    dots.resize(static_cast<std::size_t>(rows * entries));
    matmul_transposed(q.data(), keys.data(), dots.data(), rows, entries, AS_INDEX_DIM,
                      precision.fp32_sums);

    const auto score = [&](std::int64_t t, std::vector<double>& w, std::vector<double>& scores) {
      const std::int64_t n = lens.get(t);
      weights.load(t, w.data());
      std::fill_n(scores.begin(), n, 0.0);
      for (std::int64_t j = 0; j < heads; ++j) {
        const double* head_dots = dots.data() + ((t - first) * heads + j) * entries;
        const double weight = step(w[static_cast<std::size_t>(j)]);
        for (std::int64_t c = 0; c < n; ++c) {
          const double dot = step(head_dots[c]);
          const double relu = dot < 0 ? 0 : dot;  // NaN stays NaN
          double& sum = scores[static_cast<std::size_t>(c)];
          sum = precision.sum(sum + step(relu * weight));
        }
      }
      if (bf16) precision.bf16(scores.data(), n);
      precision.fp32(scores.data(), n);
      logits.store(t, 0, n, scores.data());
    };
    for_rows(end - first, 1, [&](std::int64_t from, std::int64_t to) {
      std::vector<double> w(static_cast<std::size_t>(heads));
      std::vector<double> scores(static_cast<std::size_t>(entries));
      for (std::int64_t t = first + from; t < first + to; ++t) score(t, w, scores);
    });
    first = end;
  }
}

}  // namespace attnscope::reference
