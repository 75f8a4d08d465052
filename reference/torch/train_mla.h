// Absorbed MLA with an indexer over tokens (DeepSeek-V3.2), to be trained.
#pragma once

#include <vector>

#include "reference/model_mla.h"
#include "reference/torch/train_model.h"

namespace attnscope::reference {

class TrainMla : public TrainModel {
 public:
  TrainMla(const MlaNumbers& numbers, const TensorSource& source, at::ScalarType type);

  at::Tensor forward(const at::Tensor& ids, Attends attends, bool choose,
                     std::vector<LayerSeen>* seen) const override;
  at::Tensor logits(const at::Tensor& hidden) const override;

 private:
  // Of the indexer: queries [B, T, J, D], keys [B, D, T], weights of heads [B, T, J].
  struct IndexParts {
    at::Tensor query, keys, weights;
  };
  at::Tensor attention(std::size_t layer, const at::Tensor& x, std::int64_t sequences,
                       Attends attends, bool choose, std::vector<LayerSeen>* seen) const;
  IndexParts index_parts(std::size_t layer, const at::Tensor& x, const at::Tensor& qr,
                         std::int64_t sequences) const;
  std::string prefix(std::size_t layer) const;
  void read(const TensorSource& source, at::ScalarType type);

  MlaNumbers n_;
  std::vector<double> turns_;
};

}  // namespace attnscope::reference
