#include "engine/family/tensor_parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "engine/family/dense/dense.h"
#include "engine/family/family.h"
#include "engine/family/rank_split.h"
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

// The part of a rank. One that cuts through blocks of an FP8 matrix has the values of the codes, in
// bf16.
Weight dealt(const Weight& whole, Shard shard, const TensorParallel& part) {
  const auto own = [&](const auto& buffer) {
    return shard == Shard::kRows ? own_rows(buffer, part) : own_columns(buffer, part);
  };
  Weight out;
  out.name = whole.name;
  out.bf16 = own(whole.bf16);
  out.f32 = own(whole.f32);
  const Fp8Matrix& fp8 = whole.fp8;
  if (fp8.codes.size() == 0) return out;
  const auto& shape = fp8.codes.shape();
  const std::int64_t cut = shape[shard == Shard::kRows ? 0 : 1];
  // Groups have scales of their own, which go with them.
  if (shape.size() == 2 && cut / part.size % kScaleBlock != 0) {
    out.bf16 = own(decoded(fp8, nullptr));
  } else {
    out.fp8 = {own(fp8.codes), own(fp8.scales)};
  }
  return out;
}

// Into how many a weight is cut.
int parts_of(const WeightSpec& whole, const WeightSpec& of_rank, Shard shard) {
  const std::size_t axis = shard == Shard::kRows ? 0 : 1;
  return static_cast<int>(whole.shape[axis] / of_rank.shape[axis]);
}

// Whether ops read a weight that every rank runs for itself.
bool on_every_rank(const ModelGraph& graph, const LayerGraph& layer, std::string_view weight) {
  return std::ranges::any_of(rank_split(graph, layer).ops, [&](as_op_id op) {
    return std::ranges::any_of(layer.find(op)->bindings(), [&](const Binding& b) {
      return b.to == BoundTo::kWeight && b.weight == weight;
    });
  });
}

}  // namespace

Result<void> check_parallel(const ModelConfig& whole, const TensorParallel& parallel) {
  const std::span<const DealtNumber> dealt = family_of(whole).dealt;
  const auto divides = [&](int ranks) {
    return std::ranges::all_of(dealt,
                               [&](const DealtNumber& d) { return d.divides(whole, ranks); });
  };
  std::vector<int> allowed;
  for (int n = 1; n <= whole.heads; ++n) {
    if (divides(n)) allowed.push_back(n);
  }
  for (const DealtNumber& d : dealt) {
    if (parallel.size >= 1 && d.divides(whole, parallel.size)) continue;
    return bad_input(fmt::format("{} ranks do not divide the {} {} of {}", parallel.size,
                                 whole.*d.number, d.what, whole.name),
                     fmt::format("allowed: {}", fmt::join(allowed, ", ")));
  }
  if (parallel.rank < 0 || parallel.rank >= parallel.size) {
    return bad_input(fmt::format("there is no rank {} among {}", parallel.rank, parallel.size),
                     fmt::format("allowed: 0 to {}", parallel.size - 1));
  }
  if (parallel.size == 1) return {};
  if (!whole.dense.mask.empty() || !whole.dense.score.empty()) {
    return bad_input(
        fmt::format("{} has a mask or a score function, which may ask for heads of the "
                    "whole model",
                    whole.name),
        "run it on one rank");
  }
  if (whole.family == "dense" && dense_scales_beside(whole) > 1) {
    return bad_input(fmt::format("{} has a scale a KV head beside its caches, which are not dealt "
                                 "out to ranks",
                                 whole.name),
                     "run it on one rank, or with a scale a tensor or a token and head");
  }
  if (!whole.dense.sides.empty()) {
    return bad_input(
        fmt::format("{} is an encoder-decoder, whose bias by distance is not dealt out "
                    "to ranks",
                    whole.name),
        "run it on one rank");
  }
  const auto graph = model_graph(whole);
  if (const auto ops = summing_ops(*graph); ops.size() > 1) {
    return bad_input(fmt::format("{} adds up over ranks behind both {} and {}", whole.name,
                                 as_op_find(ops[0])->name, as_op_find(ops[1])->name),
                     "ranks of models with one sum a layer are supported: run it on one rank");
  }
  const Family& family = family_of(whole);
  std::vector<CacheSpec> caches = family.caches(whole);
  return deal_caches(*graph, caches, family.caches(with_twice_dealt(whole)));
}

ModelConfig rank_config(const ModelConfig& whole, const TensorParallel& parallel) {
  ModelConfig config = whole;
  if (parallel.size == 1) return config;
  config.name = fmt::format("{}, rank {} of {}", whole.name, parallel.rank, parallel.size);
  for (const DealtNumber& d : family_of(whole).dealt) {
    config.*d.number = d.of_rank(whole, parallel.size);
  }
  config.parallel = parallel;
  return config;
}

std::vector<std::shared_ptr<const Weights>> rank_weights(const ModelConfig& config, Weights whole,
                                                         const TensorParallel& own) {
  std::vector<std::shared_ptr<const Weights>> ranks;
  if (own.size == 1) {
    ranks.push_back(std::make_shared<const Weights>(std::move(whole)));
    return ranks;
  }
  std::vector<Weights> parts(static_cast<std::size_t>(own.size));
  for (Weights& part : parts) part.layers.resize(whole.layers.size());
  const ModelWeights specs = family_of(config).weights(config);
  const ModelWeights of_rank = family_of(config).weights(rank_config(config, own));
  const auto graph = model_graph(config);
  for (std::size_t i = 0; i < specs.layers.size(); ++i) {
    for (std::size_t k = 0; k < specs.layers[i].size(); ++k) {
      const WeightSpec& spec = specs.layers[i][k];
      const Shard shard = shard_of(*graph, spec.name);
      Weight& all = whole.layers[i][spec.name];
      if (shard == Shard::kWhole) {
        if (!on_every_rank(*graph, graph->layers[i], spec.name)) continue;
        for (int rank = 0; rank < own.size; ++rank) {
          if (rank != own.rank) {
            parts[static_cast<std::size_t>(rank)].layers[i][spec.name] =
                dealt(all, Shard::kRows, {1, 0});
          }
        }
        continue;
      }
      // Fewer parts than ranks: neighbours have the same one.
      const int count = parts_of(spec, of_rank.layers[i][k], shard);
      for (int rank = 0; rank < own.size; ++rank) {
        parts[static_cast<std::size_t>(rank)].layers[i][spec.name] =
            dealt(all, shard, {count, rank * count / own.size});
      }
      // Nobody has what was dealt out as a whole.
      all = std::move(parts[static_cast<std::size_t>(own.rank)].layers[i][spec.name]);
    }
  }
  // Everything else is the own rank's.
  parts[static_cast<std::size_t>(own.rank)] = std::move(whole);
  for (Weights& part : parts) ranks.push_back(std::make_shared<const Weights>(std::move(part)));
  return ranks;
}

}  // namespace attnscope
