// What a run's numbers look like, so that a reader can judge whether it exercised anything: sink
// mass per layer, indexer scores and margins, how selective the indexer was.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params/attention_params.h"
#include "kernels/params/indexer_params.h"

namespace attnscope {

// Quantiles of a bag of numbers.
struct Quantiles {
  std::int64_t count = 0;
  double min = 0, p10 = 0, median = 0, p90 = 0, max = 0;
};
Quantiles quantiles(std::vector<double> values);

struct LayerDistributions {
  int layer = 0;  // published number
  // sparse_attention: e^sink / (sum e^l + e^sink) per token and head; LSE without the sink.
  std::vector<double> sink_mass, lse;
  // indexer_logits of the last token of each request: standard deviation over entries, share of
  // distinct values, and margin k-th best minus best unselected (where more than k are visible).
  std::vector<double> score_deviation, score_distinct, margin;
  std::int64_t selective_tokens = 0;  // tokens that saw more entries than the indexer may select
  std::int64_t tokens = 0;
};

class Distributions {
 public:
  void add(int layer, const as_sparse_attention_params& params);
  // top_k: K of the model.
  void add(int layer, const as_indexer_logits_params& params, std::int64_t top_k);
  const std::vector<LayerDistributions>& layers() const { return layers_; }

 private:
  LayerDistributions& of(int layer);
  std::vector<LayerDistributions> layers_;
};

}  // namespace attnscope
