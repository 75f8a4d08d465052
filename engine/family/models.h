// Models of all families: presets by name, config.json files, and what follows from a model.
//
//   Result<ModelConfig> c = preset("v4-flash", {0, 2, 3, 4});
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/model/model_config.h"

namespace attnscope {

// layers empty = all. Unknown name, layer out of range or listed twice: AS_BAD_INPUT with the
// allowed values.
Result<ModelConfig> preset(std::string_view name, const std::vector<int>& layers = {});
std::vector<std::string> preset_names();

// A config.json as published, or the folder of a checkpoint that has it. Without `layers` those
// that the file names under attnscope_layers (an exported part of a model), else all. A missing
// required key, a wrong type, a value that is not supported: AS_BAD_INPUT naming file and key.
Result<ModelConfig> read_hf_config(const std::string& path, const std::vector<int>& layers = {});

// Every rule of the model's family. Names the key and the allowed values.
Result<void> validate(const ModelConfig& config);

// Sets config.layers: all when `layers` is empty, else these, ascending. Out of range or listed
// twice: an error with the allowed values.
Result<void> select_layers(ModelConfig& config, const std::vector<int>& layers);

// Puts the model's first draft layer behind the layers that run, all of which must be main ones. An
// error where the model has none that can run.
Result<void> add_draft_layer(ModelConfig& config);

// Sets the switches of a profile by its text (profile_switches.h). A switch that is set otherwise
// than by default and that the model's family has not is refused by name.
Result<void> set_profile(ModelConfig& config, std::string_view text);
// What rows of K and V hold (DenseAttention::cache_record), by the name of a format: "fp8_tensor".
// An error with the allowed names, or where the model's family has rows of its own.
Result<void> set_cache_dtype(ModelConfig& config, const std::string& name);
// How pages of K and V lie in memory, "NHD" or "HND". Errors as there.
Result<void> set_cache_layout(ModelConfig& config, const std::string& name);
// How many first tokens of a request have rows of 16 bits beside those of codes; 0 = none.
Result<void> set_first_tokens(ModelConfig& config, std::int64_t tokens);
// "hadamard (off, on), ..": the switches that the model has; "none".
std::string switches_of_model(const ModelConfig& config);

// The caches of its layers, grouped and placed.
CacheLayout build_cache_layout(const ModelConfig& config);

// Of a layer that runs, as people call it: "C4A".
const char* layer_type_name(const ModelConfig& config, int layer);

// Rotary embedding of a layer that runs: its numbers, no table.
as_rope layer_rope(const ModelConfig& config, int layer);

// Whether a layer that runs selects which entries its attention reads.
bool layer_selects(const ModelConfig& config, int layer);

}  // namespace attnscope
