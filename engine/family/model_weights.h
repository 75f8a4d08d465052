// A model's weights as its family lists them: memory for them, synthetic values, how many there
// are.
//
// synthetic_weights() is seeded and counter-based: the same bytes for any number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/model/weight_spec.h"
#include "engine/model/weights.h"
#include "kernels/params/lane.h"

namespace attnscope {

// Zeros, projections in the format that the switches ask for.
Weights allocate_weights(const ModelConfig& config);
Weights synthetic_weights(const ModelConfig& config, std::uint64_t seed, const as_threads* threads);

// Adds config.sink_shift to every sink (weights called "sinks"), then puts config.sinks in the
// place of those of their heads; where weights are made or read.
void shift_sinks(const ModelConfig& config, Weights& weights);

// Whether any of its layers, or what is around them, has one of this name (WeightSpec).
bool has_weight(const ModelConfig& config, std::string_view name);

// Parameters of the layers that run and of what is around them.
std::int64_t parameter_count(const ModelConfig& config);
// Of all weights, two bytes a parameter where it is not in FP8.
std::int64_t weight_bytes(const ModelConfig& config);
// The projections that stay bf16 although the switch is on, with their shapes: "wo_b [512, 64]".
std::vector<std::string> projections_left_in_bf16(const ModelConfig& config);

}  // namespace attnscope
