#include "reference/torch/train_measure.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "reference/torch/selection_order.h"

namespace attnscope::reference {
namespace {

namespace measures {

using at::Tensor;

double mean_of(const Tensor& t) { return t.to(at::kDouble).mean().item<double>(); }

// One token: attention to the entries that it sees, and the indexer's choice of them.
struct Looked {
  const float* attention;
  const bool* chosen;
  std::int64_t sees, k;
};

// seen: on the host.
Looked token_of(const LayerSeen& seen, std::int64_t t, std::int64_t entry, std::int64_t k) {
  const BlockSeen* block = &seen.front();
  for (const BlockSeen& b : seen) {
    if (b.begin <= t) block = &b;
  }
  const std::int64_t row = (t - block->begin) * block->chosen.size(2);
  return {block->attention.data_ptr<float>() + row, block->chosen.data_ptr<bool>() + row,
          (t + 1) / entry, k};
}

// before: the choice of the token before.
void add(const Looked& at, const std::vector<bool>& before, std::vector<std::int32_t>& order,
         SelectionMeasure& sum) {
  order.resize(static_cast<std::size_t>(at.sees));
  std::iota(order.begin(), order.end(), 0);
  std::nth_element(
      order.begin(), order.begin() + (at.k - 1), order.end(),
      [&](std::int32_t a, std::int32_t b) { return selected_before(at.attention, a, b); });
  const auto k = static_cast<double>(at.k), sees = static_cast<double>(at.sees);
  const std::int64_t last = at.sees - at.k;  // the first of the last k
  double hits = 0, last_hits = 0;
  for (std::int64_t i = 0; i < at.k; ++i) {
    const std::int32_t entry = order[static_cast<std::size_t>(i)];
    hits += at.chosen[entry] ? 1 : 0;
    last_hits += entry >= last ? 1 : 0;
    sum.best_mass += at.attention[entry];
  }
  double both = 0;
  for (std::int64_t s = 0; s < at.sees; ++s) {
    if (at.chosen[s]) sum.mass += at.attention[s];
    if (s >= last) sum.last_mass += at.attention[s];
    if (at.chosen[s] && s < std::ssize(before) && before[static_cast<std::size_t>(s)]) both += 1;
  }
  sum.recall += hits / k;
  sum.last_recall += last_hits / k;
  sum.random_recall += k / sees;
  sum.random_mass += k / sees;
  sum.overlap += both / k;
}

}  // namespace measures

}  // namespace

using at::Tensor;

TrainMeasure measure_selections(const TrainModel& model, const Tensor& all, std::int64_t far) {
  const std::int64_t T = all.size(1) - 1, k = model.topk(), entry = model.entry();
  if (far <= k || far * entry > T) {
    throw std::invalid_argument("no token sees more than are selected in a sequence of " +
                                std::to_string(T));
  }
  const std::int64_t first = far * entry - 1, looked_at = T - first;
  const Tensor ids = all.narrow(1, 0, T), next = all.narrow(1, 1, T);
  TrainMeasure out;
  std::vector<std::int32_t> order;
  double tokens = 0;
  const auto sequences = static_cast<double>(ids.size(0));
  for (std::int64_t b = 0; b < ids.size(0); ++b) {  // one at a time: attention is large
    const Tensor one = ids.narrow(0, b, 1), asked = next.narrow(0, b, 1);
    std::vector<LayerSeen> seen;
    const Tensor dense = model.losses(model.forward(one, Attends::kAll, true, &seen), asked);
    const Tensor sparse = model.losses(model.forward(one, Attends::kChosen, false, nullptr), asked);
    out.dense.language += measures::mean_of(dense) / sequences;
    out.sparse += measures::mean_of(sparse) / sequences;
    out.dense_far += measures::mean_of(dense.narrow(1, first, looked_at)) / sequences;
    out.sparse_far += measures::mean_of(sparse.narrow(1, first, looked_at)) / sequences;
    out.layers.resize(seen.size());
    tokens += static_cast<double>(looked_at);
    std::vector<std::vector<bool>> before(seen.size());
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const Tensor kl = model.divergence(seen[i], false);
      out.dense.kl += measures::mean_of(kl) / sequences / static_cast<double>(seen.size());
      out.layers[i].kl += kl.narrow(1, first, looked_at).sum().item<double>();
      for (BlockSeen& block : seen[i]) {
        block.attention = block.attention.cpu();
        block.chosen = block.chosen.cpu();
      }
    }
    for (std::int64_t t = first - 1; t < T; ++t) {
      for (std::size_t i = 0; i < seen.size(); ++i) {
        measures::Looked at = measures::token_of(seen[i], t, entry, k);
        if (t >= first) {
          measures::add(at, before[i], order, out.layers[i]);
          for (std::int32_t s = 0; s < at.sees; ++s) {
            if (at.chosen[s]) out.selected.push_back(s);
          }
        }
        before[i].assign(at.chosen, at.chosen + at.sees);
      }
    }
  }
  for (SelectionMeasure& m : out.layers) {
    for (double* sum : {&m.kl, &m.recall, &m.mass, &m.last_recall, &m.last_mass, &m.random_recall,
                        &m.random_mass, &m.best_mass, &m.overlap}) {
      *sum /= tokens;
    }
  }
  return out;
}

}  // namespace attnscope::reference
