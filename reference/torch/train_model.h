// The model that is trained, as a function that libtorch can differentiate: batches of sequences of
// one length, each from position 0.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "reference/model_mla.h"

namespace attnscope::reference {

// Tokens in a row of one layer that selects, over those up to the last of them.
struct BlockSeen {
  std::int64_t begin = 0;
  at::Tensor attention;  // [B, n, begin + n] of all heads, rows with sum 1; nothing learns by it
  at::Tensor scores;     // the same of the indexer, where asked for
  at::Tensor chosen;     // bool: in the k best, where asked for
};
using LayerSeen = std::vector<BlockSeen>;  // all tokens

enum class Attends { kAll, kChosen };

class TrainModel {
 public:
  TrainModel(const MlaNumbers& numbers, const TensorSource& source, at::ScalarType type);

  // ids [B, T]; gives the hidden state behind the last layer, normalised, [B * T, hidden].
  // seen: of the layers that select, where somebody wants to know. choose: also what they would
  // choose where they attend to all.
  at::Tensor forward(const at::Tensor& ids, Attends attends, bool choose,
                     std::vector<LayerSeen>* seen) const;
  at::Tensor logits(const at::Tensor& hidden) const;  // [B * T, 256]
  // Nats of each token, [B, T]. targets [B, T].
  at::Tensor losses(const at::Tensor& hidden, const at::Tensor& targets) const;
  // KL(p || softmax(I)) of each token, [B, T], over all tokens before or over the chosen ones.
  at::Tensor divergence(const LayerSeen& seen, bool chosen) const;

  static bool of_indexer(const std::string& name);
  const std::map<std::string, at::Tensor>& weights() const { return weights_; }
  const MlaNumbers& numbers() const { return n_; }

 private:
  // Of the indexer: queries [B, T, J, D], keys [B, D, T], weights of heads [B, T, J].
  struct IndexParts {
    at::Tensor query, keys, weights;
  };
  at::Tensor attention(std::size_t layer, const at::Tensor& x, std::int64_t sequences,
                       Attends attends, bool choose, std::vector<LayerSeen>* seen) const;
  IndexParts index_parts(std::size_t layer, const at::Tensor& x, const at::Tensor& qr,
                         std::int64_t sequences) const;
  static at::Tensor scores_of(const IndexParts& parts, std::int64_t begin, std::int64_t end);
  at::Tensor rms_norm(const at::Tensor& x, const std::string& name) const;
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }
  std::string prefix(std::size_t layer) const;
  void read(const TensorSource& source, at::ScalarType type);

  MlaNumbers n_;
  std::map<std::string, at::Tensor> weights_;
  std::vector<double> frequencies_;  // [rope_dim / 2], rounded to fp32
};

}  // namespace attnscope::reference
