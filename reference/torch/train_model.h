// A model that is trained, as a function that libtorch can differentiate: batches of sequences of
// one length, each from position 0, on the device that was chosen (device.h).
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "reference/model.h"

namespace attnscope::reference {

// Tokens in a row of one layer that selects, over the entries that the last of them sees.
struct BlockSeen {
  std::int64_t begin = 0;
  // [B, n, entries] of all heads; rows have the sum 1, or are 0 where a token sees no entry.
  // Nothing learns by it.
  at::Tensor attention;
  at::Tensor scores;  // the same of the indexer, where asked for
  at::Tensor chosen;  // bool: in the k best, where asked for
};
using LayerSeen = std::vector<BlockSeen>;  // all tokens

enum class Attends { kAll, kChosen };

class TrainModel {
 public:
  virtual ~TrainModel() = default;

  // ids [B, T]; gives the hidden state behind the last layer, normalised, [B * T, hidden].
  // seen: of the layers that select, where somebody wants to know. choose: also what they would
  // choose where they attend to all.
  virtual at::Tensor forward(const at::Tensor& ids, Attends attends, bool choose,
                             std::vector<LayerSeen>* seen) const = 0;
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;  // [B * T, 256]
  // Nats of each token, [B, T]. targets [B, T].
  at::Tensor losses(const at::Tensor& hidden, const at::Tensor& targets) const;
  // KL(p || softmax(I)) of each token, [B, T], over all entries that it sees or over the chosen
  // ones; 0 where it sees none.
  at::Tensor divergence(const LayerSeen& seen, bool chosen) const;

  static bool of_indexer(const std::string& name);
  const std::map<std::string, at::Tensor>& weights() const { return weights_; }
  std::int64_t topk() const { return topk_; }
  std::int64_t entry() const { return entry_; }  // tokens of an entry that is selected

 protected:
  TrainModel(std::int64_t topk, std::int64_t entry, double norm_eps)
      : topk_(topk), entry_(entry), norm_eps_(norm_eps) {}

  // Weights by name, converted to one type and copied to the device. Throws where one is missing.
  void add(const TensorSource& source, at::ScalarType type, const std::string& name,
           at::IntArrayRef shape);
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }
  // By a weight [out, in].
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return at::mm(x, weight(name).t());
  }
  at::Tensor rms_norm(const at::Tensor& x) const;
  at::Tensor rms_norm(const at::Tensor& x, const std::string& name) const {
    return rms_norm(x) * weight(name);
  }
  // Attention of heads [B, n, H, entries] to the entries, as BlockSeen has it.
  static at::Tensor share_of_entries(const at::Tensor& weights, std::int64_t heads_axis);

 private:
  std::int64_t topk_, entry_;
  double norm_eps_;
  std::map<std::string, at::Tensor> weights_;
};

}  // namespace attnscope::reference
