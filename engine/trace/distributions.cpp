#include "engine/trace/distributions.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/params/tensor_view.h"

namespace attnscope {

Quantiles quantiles(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  Quantiles q;
  q.count = static_cast<std::int64_t>(values.size());
  if (values.empty()) return q;
  std::sort(values.begin(), values.end());
  const auto pick = [&](double share) {
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
  };
  q.min = values.front();
  q.p10 = pick(0.1);
  q.median = pick(0.5);
  q.p90 = pick(0.9);
  q.max = values.back();
  return q;
}

LayerDistributions& Distributions::of(int layer) {
  auto it = std::find_if(layers_.begin(), layers_.end(),
                         [&](const LayerDistributions& d) { return d.layer == layer; });
  if (it != layers_.end()) return *it;
  layers_.emplace_back();
  layers_.back().layer = layer;
  return layers_.back();
}

void Distributions::add(int layer, const as_sparse_attention_params& p) {
  LayerDistributions& d = of(layer);
  for (std::int64_t t = 0; t < p.lse.shape[0]; ++t) {
    for (std::int64_t h = 0; h < p.lse.shape[1]; ++h) {
      const double lse = *at<float>(p.lse, t, h);
      const double sink = *at<float>(p.sinks, h);
      d.lse.push_back(lse);
      d.sink_mass.push_back(1 / (1 + std::exp(lse - sink)));
    }
  }
}

void Distributions::add(int layer, const as_indexer_logits_params& p, std::int64_t top_k) {
  LayerDistributions& d = of(layer);
  const std::int64_t tokens = p.lens.shape[0];
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t len = *at<std::int32_t>(p.lens, t);
    ++d.tokens;
    if (len > top_k) ++d.selective_tokens;
    const bool last = t + 1 == tokens || *at<std::int32_t>(p.token_to_req, t + 1) !=
                                             *at<std::int32_t>(p.token_to_req, t);
    if (!last || len < 2) continue;
    std::vector<float> row(at<float>(p.logits, t), at<float>(p.logits, t) + len);
    double sum = 0, squares = 0;
    for (float v : row) {
      sum += v;
      squares += static_cast<double>(v) * v;
    }
    const double mean = sum / len;
    d.score_deviation.push_back(std::sqrt(std::max(0.0, squares / len - mean * mean)));
    std::sort(row.begin(), row.end(), std::greater<>());
    const auto distinct = std::unique(row.begin(), row.end()) - row.begin();
    d.score_distinct.push_back(static_cast<double>(distinct) / len);
    if (len > top_k) {
      std::vector<float> all(at<float>(p.logits, t), at<float>(p.logits, t) + len);
      std::nth_element(all.begin(), all.begin() + top_k, all.end(), std::greater<>());
      const float best_left_out = all[static_cast<std::size_t>(top_k)];
      const float worst_taken = *std::min_element(all.begin(), all.begin() + top_k);
      d.margin.push_back(static_cast<double>(worst_taken) - best_left_out);
    }
  }
}

}  // namespace attnscope
