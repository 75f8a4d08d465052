#include "engine/model/tensor_parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/model/fp8_projections.h"

namespace attnscope {
namespace {

// Part `rank` of `size` of the first axis.
template <class T>
Buffer<T> own_rows(const Buffer<T>& whole, const TensorParallel& part) {
  if (whole.size() == 0) return {};
  std::vector<std::int64_t> shape = whole.shape();
  shape[0] /= part.size;
  Buffer<T> out(shape);
  std::copy_n(whole.data() + out.size() * part.rank, out.size(), out.data());
  return out;
}

// Part `rank` of `size` of the columns of a matrix.
template <class T>
Buffer<T> own_columns(const Buffer<T>& whole, const TensorParallel& part) {
  if (whole.size() == 0) return {};
  const std::int64_t all = whole.shape()[1], columns = all / part.size;
  Buffer<T> out({whole.shape()[0], columns});
  for (std::int64_t row = 0; row < whole.shape()[0]; ++row) {
    std::copy_n(whole.data() + row * all + part.rank * columns, columns,
                out.data() + row * columns);
  }
  return out;
}

void deal_out(const LayerWeights& whole, const TensorParallel& part, LayerWeights& out) {
  out.wq_b = own_rows(whole.wq_b, part);
  out.sinks = own_rows(whole.sinks, part);
  out.wo_a = own_rows(whole.wo_a, part);
  out.wo_b = own_columns(whole.wo_b, part);
  out.fp8.wq_b = {own_rows(whole.fp8.wq_b.codes, part), own_rows(whole.fp8.wq_b.scales, part)};
  const Fp8Matrix& wo_b = whole.fp8.wo_b;
  if (wo_b.codes.size() == 0) return;
  // Inputs of a rank that cut through blocks: the values of the codes, in bf16.
  if (wo_b.codes.shape()[1] / part.size % kScaleBlock != 0) {
    out.wo_b = own_columns(decoded(wo_b, nullptr), part);
  } else {
    out.fp8.wo_b = {own_columns(wo_b.codes, part), own_columns(wo_b.scales, part)};
  }
}

}  // namespace

Result<void> check_parallel(const ModelConfig& whole, const TensorParallel& parallel) {
  std::vector<int> allowed;
  for (int n = 1; n <= whole.heads; ++n) {
    if (whole.heads % n == 0 && whole.o_groups % n == 0) allowed.push_back(n);
  }
  const auto with = [&](const char* what, int count) {
    return bad_input(fmt::format("{} ranks do not divide the {} {} of {}", parallel.size, count,
                                 what, whole.name),
                     fmt::format("allowed: {}", fmt::join(allowed, ", ")));
  };
  if (parallel.size < 1 || whole.heads % parallel.size != 0) return with("heads", whole.heads);
  if (whole.o_groups % parallel.size != 0) return with("output groups", whole.o_groups);
  if (parallel.rank < 0 || parallel.rank >= parallel.size) {
    return bad_input(fmt::format("there is no rank {} among {}", parallel.rank, parallel.size),
                     fmt::format("allowed: 0 to {}", parallel.size - 1));
  }
  return {};
}

ModelConfig rank_config(const ModelConfig& whole, const TensorParallel& parallel) {
  ModelConfig config = whole;
  if (parallel.size == 1) return config;
  config.name = fmt::format("{}, rank {} of {}", whole.name, parallel.rank, parallel.size);
  config.heads /= parallel.size;
  config.o_groups /= parallel.size;
  config.parallel = parallel;
  return config;
}

std::vector<std::shared_ptr<const Weights>> rank_weights(Weights whole, const TensorParallel& own) {
  std::vector<std::shared_ptr<const Weights>> ranks;
  if (own.size == 1) {
    ranks.push_back(std::make_shared<const Weights>(std::move(whole)));
    return ranks;
  }
  std::vector<Weights> parts(static_cast<std::size_t>(own.size));
  for (int rank = 0; rank < own.size; ++rank) {
    Weights& part = parts[static_cast<std::size_t>(rank)];
    part.layers.resize(whole.layers.size());
    for (std::size_t i = 0; i < whole.layers.size(); ++i) {
      deal_out(whole.layers[i], {own.size, rank}, part.layers[i]);
    }
  }
  // Everything else is the own rank's, and nobody's the matrices that were dealt out.
  Weights& mine = parts[static_cast<std::size_t>(own.rank)];
  for (std::size_t i = 0; i < whole.layers.size(); ++i) {
    LayerWeights& layer = whole.layers[i];
    layer.wq_b = std::move(mine.layers[i].wq_b);
    layer.sinks = std::move(mine.layers[i].sinks);
    layer.wo_a = std::move(mine.layers[i].wo_a);
    layer.wo_b = std::move(mine.layers[i].wo_b);
    layer.fp8.wq_b = std::move(mine.layers[i].fp8.wq_b);
    layer.fp8.wo_b = std::move(mine.layers[i].fp8.wo_b);
  }
  mine = std::move(whole);
  for (Weights& part : parts) ranks.push_back(std::make_shared<const Weights>(std::move(part)));
  return ranks;
}

}  // namespace attnscope
