#include "reference/torch/train_model.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "reference/torch/device.h"
#include "reference/torch/train_parts.h"

namespace attnscope::reference {
namespace {

constexpr double kOutOfSight = -std::numeric_limits<double>::infinity();
constexpr double kLeastShare = 1e-30;  // a sum that fp32 has lost is no divisor

}  // namespace

using at::Tensor;

bool TrainModel::of_indexer(const std::string& name) {
  return name.find(".indexer.") != std::string::npos;
}

Tensor TrainModel::rms_norm(const Tensor& x) const {
  return x * (x.square().mean(-1, true) + norm_eps_).rsqrt();
}

Tensor TrainModel::losses(const Tensor& hidden, const Tensor& targets) const {
  const Tensor logs = logits(hidden).log_softmax(-1);
  return -logs.gather(1, targets.reshape({-1, 1})).view(targets.sizes());
}

Tensor TrainModel::share_of_entries(const Tensor& weights, std::int64_t heads_axis) {
  const Tensor all = weights.detach().sum(heads_axis);
  return all / all.sum(-1, true).clamp_min(kLeastShare);
}

Tensor TrainModel::divergence(const LayerSeen& seen, bool chosen) const {
  std::vector<Tensor> all;
  for (const BlockSeen& block : seen) {
    const std::int64_t n = block.scores.size(1);
    const std::int64_t blind = std::clamp<std::int64_t>(entry_ - 1 - block.begin, 0, n);
    const auto seeing = [&](const Tensor& t, std::int64_t axis) {
      return t.narrow(axis, blind, n - blind);
    };
    if (blind > 0) all.push_back(block.scores.new_zeros({block.scores.size(0), blind}));
    const Tensor unseen = unfinished(block.begin, block.begin + n, entry_, block.scores.device());
    const Tensor out = chosen ? seeing(block.chosen, 1).logical_not() : seeing(unseen, 0);
    const Tensor kept = seeing(block.attention, 1).masked_fill(out, 0);
    const Tensor p = kept / kept.sum(-1, true).clamp_min(kLeastShare);
    const Tensor logs =
        seeing(block.scores, 1).masked_fill(out, kOutOfSight).log_softmax(-1).masked_fill(out, 0);
    all.push_back((at::xlogy(p, p) - p * logs).sum(-1));
  }
  return at::cat(all, 1);
}

void TrainModel::add(const TensorSource& source, at::ScalarType type, const std::string& name,
                     at::IntArrayRef shape) {
  const TensorEntry* entry = source(name);
  if (entry == nullptr) throw std::invalid_argument(name + ": the model has no such tensor");
  at::ScalarType stored = at::kByte;
  if (entry->type == ElementType::kBf16) stored = at::kBFloat16;
  if (entry->type == ElementType::kF32) stored = at::kFloat;
  if (entry->type == ElementType::kF64) stored = at::kDouble;
  if (stored == at::kByte) throw std::invalid_argument(name + ": not BF16, F32 or F64");
  if (at::IntArrayRef(entry->shape) != shape) {
    throw std::invalid_argument(name + ": a shape that is not the model's");
  }
  Tensor t = at::empty(shape, stored);
  std::memcpy(t.data_ptr(), entry->data, entry->bytes);
  weights_[name] = t.to(type).clone().to(torch_device());
}

}  // namespace attnscope::reference
