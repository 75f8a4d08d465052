// Selection: the best entries of a row of scores, and the greedy choice of a token.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "reference/ops.h"
#include "reference/tensors.h"

namespace attnscope::reference {

void indexer_topk(const as_indexer_topk_params& p, const Precision&) {
  const FloatRows logits(p.logits, "logits", {kAny, kAny});
  const std::int64_t tokens = logits.rows();
  const Integers lens(p.lens, "lens", {tokens});
  const Integers indices(p.indices, "indices", {tokens, kAny});
  const std::int64_t k = indices.size(1);
  std::vector<double> scores(static_cast<std::size_t>(logits.cols()));
  std::vector<std::int64_t> entries;

  // Better first: numbers before NaN, higher scores before lower, lower entries before higher.
  const auto better = [&](std::int64_t a, std::int64_t b) {
    const double x = scores[static_cast<std::size_t>(a)];
    const double y = scores[static_cast<std::size_t>(b)];
    if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
    if (x != y && !std::isnan(x)) return x > y;
    return a < b;
  };
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t n = std::max<std::int64_t>(lens.get(t), 0);
    check_index(n, logits.cols() + 1, "number of visible entries", t);
    logits.load(t, 0, n, scores.data());
    entries.resize(static_cast<std::size_t>(n));
    std::iota(entries.begin(), entries.end(), 0);
    const std::int64_t chosen = std::min(k, n);
    std::nth_element(entries.begin(), entries.begin() + chosen, entries.end(), better);
    std::sort(entries.begin(), entries.begin() + chosen);
    for (std::int64_t i = 0; i < k; ++i) {
      indices.set(i < chosen ? entries[static_cast<std::size_t>(i)] : -1, t, i);
    }
  }
}

void sample(const as_sample_params& p, const Precision&) {
  const FloatRows logits(p.logits, "logits", {kAny, kAny});
  const Integers tokens(p.tokens, "tokens", {logits.rows()});
  std::vector<double> row(static_cast<std::size_t>(logits.cols()));
  for (std::int64_t i = 0; i < logits.rows(); ++i) {
    logits.load(i, row.data());
    std::int64_t best = -1;
    for (std::int64_t v = 0; v < logits.cols(); ++v) {
      const double value = row[static_cast<std::size_t>(v)];
      if (std::isnan(value)) continue;
      if (best < 0 || value > row[static_cast<std::size_t>(best)]) best = v;
    }
    tokens.set(best, i);
  }
}

}  // namespace attnscope::reference
