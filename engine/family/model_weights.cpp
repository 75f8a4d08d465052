#include "engine/family/model_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "engine/family/family.h"
#include "engine/model/fp8_projections.h"
#include "engine/model/synthetic_fill.h"

namespace attnscope {
namespace {

ModelWeights specs_of(const ModelConfig& config) { return family_of(config).weights(config); }

bool runs_in_fp8(const ModelConfig& config, const WeightSpec& spec) {
  return spec.projection && shape_runs_in_fp8(config, spec.shape);
}

Weight allocate(const WeightSpec& spec, bool fp8) {
  Weight w;
  w.name = spec.name;
  if (fp8) {
    w.fp8 = allocate_fp8(spec.shape);
  } else if (spec.dtype == AS_F32) {
    w.f32 = Buffer<float>(spec.shape);
    std::ranges::copy(spec.given, w.f32.data());
  } else {
    w.bf16 = Buffer<bf16_t>(spec.shape);
  }
  return w;
}

// f(spec, list) of each weight, with the list of its layer.
template <class F>
void for_each(const ModelWeights& specs, Weights& weights, const F& f) {
  for (const WeightSpec& spec : specs.around) f(spec, weights.around);
  weights.layers.resize(specs.layers.size());
  for (std::size_t i = 0; i < specs.layers.size(); ++i) {
    for (const WeightSpec& spec : specs.layers[i]) f(spec, weights.layers[i]);
  }
}

template <class F>
void for_each(const ModelWeights& specs, const F& f) {
  for (const WeightSpec& spec : specs.around) f(spec);
  for (const auto& layer : specs.layers) {
    for (const WeightSpec& spec : layer) f(spec);
  }
}

std::int64_t values_of(const WeightPart& part) {
  std::int64_t n = 1;
  for (const std::int64_t axis : part.shape) n *= axis;
  return n;
}

void fill_strata(const WeightFill& fill, std::uint64_t seed, float* values, std::int64_t count) {
  const double step = fill.scale / static_cast<double>(std::max<std::int64_t>(count - 1, 1));
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(fill.offset + step * static_cast<double>(i));
  }
  const std::uint64_t key = tensor_key(seed, fill.key);
  for (std::int64_t i = count - 1; i > 0; --i) {
    const auto hash = element_hash(key, static_cast<std::uint64_t>(i));
    std::swap(values[i], values[hash % static_cast<std::uint64_t>(i + 1)]);
  }
}

void fill(const WeightSpec& spec, std::uint64_t seed, Weight& weight, FillQueue& queue) {
  std::int64_t first = 0;
  for (const WeightPart& part : spec.parts) {
    const std::int64_t count = values_of(part);
    const WeightFill& f = part.fill;
    if (f.kind == WeightFill::Kind::kNormal) {
      queue.normal(weight.bf16.data() + first, count, f.key, f.scale, f.offset);
    } else if (f.kind == WeightFill::Kind::kUniform) {
      queue.uniform(weight.f32.data() + first, count, f.key, f.scale);
    } else {
      fill_strata(f, seed, weight.f32.data() + first, count);
    }
    first += count;
  }
}

}  // namespace

Weights allocate_weights(const ModelConfig& config) {
  Weights weights;
  for_each(specs_of(config), weights, [&](const WeightSpec& spec, WeightList& list) {
    list[spec.name] = allocate(spec, runs_in_fp8(config, spec));
  });
  return weights;
}

Weights synthetic_weights(const ModelConfig& config, std::uint64_t seed,
                          const as_threads* threads) {
  const ModelWeights specs = specs_of(config);
  Weights weights;
  FillQueue queue(seed);
  for_each(specs, weights, [&](const WeightSpec& spec, WeightList& list) {
    list[spec.name] = allocate(spec, false);
    fill(spec, seed, list[spec.name], queue);
  });
  queue.run(threads);
  if (config.twin_tokens) {
    bf16_t* rows = weights.around["embedding"].bf16.data();
    const std::int64_t half = config.vocabulary / 2 * std::int64_t{config.hidden};
    std::copy_n(rows, half, rows + half);
  }
  shift_sinks(config, weights);
  for_each(specs, weights, [&](const WeightSpec& spec, WeightList& list) {
    if (spec.projection) quantise_projection(config, list[spec.name], threads);
  });
  return weights;
}

void shift_sinks(const ModelConfig& config, Weights& weights) {
  if (config.sink_shift == 0 && config.sinks.empty()) return;
  const std::int64_t first = std::int64_t{config.parallel.rank} * config.heads;
  for (WeightList& layer : weights.layers) {
    Buffer<float>& sinks = layer["sinks"].f32;
    for (std::int64_t h = 0; h < sinks.size(); ++h) {
      sinks.data()[h] += static_cast<float>(config.sink_shift);
    }
    for (const auto& [head, value] : config.sinks) {
      const std::int64_t h = head - first;
      if (h >= 0 && h < sinks.size()) sinks.data()[h] = value;
    }
  }
}

bool has_weight(const ModelConfig& config, std::string_view name) {
  bool found = false;
  for_each(specs_of(config), [&](const WeightSpec& spec) { found = found || spec.name == name; });
  return found;
}

std::int64_t parameter_count(const ModelConfig& config) {
  std::int64_t total = 0;
  for_each(specs_of(config),
           [&](const WeightSpec& spec) { total += spec.given.empty() ? spec.size() : 0; });
  return total;
}

std::int64_t weight_bytes(const ModelConfig& config) {
  std::int64_t bytes = 0;
  for_each(specs_of(config), [&](const WeightSpec& spec) {
    const std::int64_t columns = spec.shape.back(), rows = spec.size() / columns;
    const std::int64_t down = rows / std::min(rows, rows_of_scale(spec.shape));
    bytes += runs_in_fp8(config, spec) ? spec.size() + 4 * down * scale_blocks(columns)
                                       : 2 * spec.size();
  });
  return bytes;
}

std::vector<std::string> projections_left_in_bf16(const ModelConfig& config) {
  std::vector<std::string> names;
  if (!config.switches.fp8_projections) return names;
  for_each(specs_of(config), [&](const WeightSpec& spec) {
    if (!spec.projection || runs_in_fp8(config, spec)) return;
    if (spec.shape.size() == 3 && config.switches.bf16_wo_a) return;  // as asked for
    std::string name;
    for (const WeightPart& part : spec.parts) {
      name += (name.empty() ? "" : " over ") + part.label;
    }
    name += fmt::format(" [{}]", fmt::join(spec.shape, ", "));
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  });
  return names;
}

}  // namespace attnscope
