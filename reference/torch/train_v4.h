// DeepSeek-V4's attention, to be trained: a window of tokens, entries that are made of 4 or of 128
// tokens, and an indexer that selects among those of 4 by index keys which it compresses itself.
#pragma once

#include <vector>

#include "reference/torch/train_model.h"
#include "reference/torch/train_parts.h"

namespace attnscope::reference {

class TrainV4 : public TrainModel {
 public:
  // Throws where the numbers ask for what no training has: layers that draft, FP8 projections,
  // frequencies in float64, sinks that are not the weights' own.
  TrainV4(const ModelNumbers& numbers, const TensorSource& source, at::ScalarType type);

  at::Tensor forward(const at::Tensor& ids, Attends attends, bool choose,
                     std::vector<LayerSeen>* seen) const override;
  at::Tensor logits(const at::Tensor& hidden) const override;

 private:
  // Of the indexer: queries [B, T, J, D], keys [B, D, entries], weights of heads [B, T, J].
  struct IndexParts {
    at::Tensor query, keys, weights;
  };
  at::Tensor attention(std::size_t layer, const at::Tensor& x, std::int64_t sequences,
                       Attends attends, bool choose, std::vector<LayerSeen>* seen) const;
  // [B, entries, d] of x [B * T, hidden].
  at::Tensor entries_of(std::size_t layer, const std::string& path, const at::Tensor& x,
                        std::int64_t sequences, std::int64_t d) const;
  IndexParts index_parts(std::size_t layer, const at::Tensor& x, const at::Tensor& qr,
                         std::int64_t sequences) const;
  // Turns the last channels of x [B, T, heads, d].
  at::Tensor rotate(const at::Tensor& x, const Turned& turns) const;
  Turned turns_at(std::size_t layer, std::int64_t count, std::int64_t stride,
                  const at::Tensor& like) const;
  std::string prefix(std::size_t layer) const;
  std::int64_t ratio(std::size_t layer) const;
  void read(const TensorSource& source, at::ScalarType type);

  ModelNumbers n_;
};

}  // namespace attnscope::reference
