#include "reference/torch/train_parts.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "reference/torch/selection_order.h"

namespace attnscope::reference {
namespace {

namespace train_parts {

using at::Tensor;

// scores [B, n, entries]
template <class T>
void mark_best(const Tensor& scores, std::int64_t begin, std::int64_t entry, std::int64_t k,
               Tensor& chosen) {
  const std::int64_t n = scores.size(1), across = scores.size(2), rows = scores.size(0) * n;
  const T* from = scores.data_ptr<T>();
  bool* to = chosen.data_ptr<bool>();
  std::vector<std::int32_t> order;
  for (std::int64_t r = 0; r < rows; ++r, from += across, to += across) {
    const std::int64_t sees = (begin + r % n + 1) / entry, kept = std::min(k, sees);
    order.resize(static_cast<std::size_t>(sees));
    std::iota(order.begin(), order.end(), 0);
    if (kept < sees) {
      std::nth_element(order.begin(), order.begin() + kept, order.end(),
                       [&](std::int32_t a, std::int32_t b) { return selected_before(from, a, b); });
    }
    for (std::int64_t i = 0; i < kept; ++i) to[order[static_cast<std::size_t>(i)]] = true;
  }
}

}  // namespace train_parts

}  // namespace

using at::Tensor;

std::vector<double> turns_of(const TrainRotary& r) {
  const auto dim = static_cast<double>(r.dim);
  const auto pair_of = [&](double times) {
    return dim * std::log(r.original_max / (2 * std::numbers::pi * times)) /
           (2 * std::log(r.theta));
  };
  const double low = std::max(0.0, std::floor(pair_of(r.beta_fast)));
  double high = std::min(dim - 1, std::ceil(pair_of(r.beta_slow)));
  if (low == high) high += 0.001;
  std::vector<double> turns;
  for (std::int64_t i = 0; i < r.dim / 2; ++i) {
    const auto pair = static_cast<double>(i);
    const auto plain = 1 / static_cast<float>(std::exp(pair * (2 / dim * std::log(r.theta))));
    float f = plain;
    if (r.factor > 1) {
      const auto at = static_cast<float>(pair - low) / static_cast<float>(high - low);
      const float kept = 1 - std::clamp(at, 0.0F, 1.0F);
      f = plain / static_cast<float>(r.factor) * (1 - kept) + plain * kept;
    }
    turns.push_back(f);
  }
  return turns;
}

Turned turned(const std::vector<double>& turns, std::int64_t count, std::int64_t stride,
              const at::TensorOptions& options) {
  const Tensor by = at::tensor(turns).to(at::kFloat);
  const Tensor positions = (at::arange(count) * stride).to(at::kFloat);
  const Tensor angles = at::outer(positions, by).to(at::kDouble);
  return {angles.cos().to(at::kFloat).to(options), angles.sin().to(at::kFloat).to(options)};
}

Tensor turn_neighbours(const Tensor& x, const Turned& t) {
  const Tensor a = x.slice(-1, 0, x.size(-1), 2), b = x.slice(-1, 1, x.size(-1), 2);
  const Tensor cos = t.cos.unsqueeze(1), sin = t.sin.unsqueeze(1);
  return at::stack({a * cos - b * sin, a * sin + b * cos}, -1).flatten(-2);
}

Tensor turn_halves(const Tensor& x, const Turned& t) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  const Tensor cos = t.cos.unsqueeze(1), sin = t.sin.unsqueeze(1);
  return at::cat({a * cos - b * sin, a * sin + b * cos}, -1);
}

Tensor unfinished(std::int64_t begin, std::int64_t end, std::int64_t entry, at::Device device) {
  const auto whole = at::TensorOptions(device).dtype(at::kLong);
  const Tensor complete = at::arange(1, end / entry + 1, whole) * entry;
  return complete.gt(at::arange(begin + 1, end + 1, whole).unsqueeze(1));
}

Tensor best_of(const Tensor& scores, std::int64_t begin, std::int64_t entry, std::int64_t k) {
  const Tensor dense = scores.detach().cpu().contiguous();
  Tensor chosen = at::zeros(dense.sizes(), at::kBool);
  if (dense.scalar_type() == at::kDouble) {
    train_parts::mark_best<double>(dense, begin, entry, k, chosen);
  } else {
    train_parts::mark_best<float>(dense, begin, entry, k, chosen);
  }
  return chosen.to(scores.device());
}

Tensor indexer_scores(const Tensor& query, const Tensor& keys, const Tensor& weights) {
  Tensor sum;
  for (std::int64_t j = 0; j < query.size(2); ++j) {
    const Tensor hits =
        at::bmm(query.select(2, j), keys).relu_() * weights.select(2, j).unsqueeze(-1);
    sum = sum.defined() ? sum + hits : hits;
  }
  return sum;
}

}  // namespace attnscope::reference
