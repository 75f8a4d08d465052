// What a family of models gives to the engine: one folder below engine/family/, entered in
// families.cpp.
#pragma once

#include <algorithm>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cache/cache_spec.h"
#include "engine/family/op_graph.h"
#include "engine/family/second_targets.h"
#include "engine/metadata/logical.h"
#include "engine/model/weight_spec.h"
#include "engine/model/weights.h"

namespace attnscope {

// A number of a model that tensor-parallel ranks share: each has an equal part. What they have of
// each weight and cache follows from it (rank_split.h).
struct DealtNumber {
  const char* what;  // "heads"
  int ModelConfig::*number;
  // More ranks than there are of it: each has one, and as many neighbours the same.
  bool repeats = false;

  int of_rank(const ModelConfig& whole, int ranks) const {
    return repeats ? std::max(1, whole.*number / ranks) : whole.*number / ranks;
  }
  bool divides(const ModelConfig& whole, int ranks) const {
    return whole.*number % ranks == 0 || (repeats && ranks % whole.*number == 0);
  }
};

struct FamilyPreset {
  const char* name;
  ModelConfig (*make)();  // with no layer chosen yet
};

// What a config.json calls itself.
struct PublishedModel {
  const char *architecture, *model_type;
};

// What one of its caches is, in files and for people.
struct NamedCache {
  CacheId id;
  const char* name;
  const char* content;
};

struct Family {
  const char* name;  // its folder, and ModelConfig::family
  // Of config.json files that it reads.
  std::span<const PublishedModel> published;
  std::span<const FamilyPreset> (*presets)();
  // A small model with a layer of every type, with no layer chosen yet.
  ModelConfig (*example)();
  // What a config.json says, no layer chosen yet; path: for errors.
  Result<ModelConfig> (*read_config)(const std::string& path, const nlohmann::json& file);
  // The same the other way; fp8: its projections are written as codes.
  nlohmann::ordered_json (*write_config)(const ModelConfig& config, bool fp8);
  // Every rule of the family. file: what the model was read from, whose keys errors name.
  Result<void> (*validate)(const ModelConfig& config, const nlohmann::json* file);
  // What people call its layers, and one that runs: one of these.
  std::span<const char* const> layer_types;
  const char* (*layer_type)(const ModelConfig& config, int layer);
  // The switches of profiles (profile_switches.h) that change what a model of it computes.
  std::span<const char* const> (*switches)(const ModelConfig&);
  // Whether it selects which entries its attention reads.
  bool (*selects)(const ModelConfig& config, int layer);
  // Its rotary embedding: numbers and how frequencies are made of them, no table.
  as_rope (*rope)(const ModelConfig& config, int layer);
  // Of all layers that run, in the order in which they are registered.
  std::vector<CacheSpec> (*caches)(const ModelConfig& config);
  // The layer that runs before this one and whose caches it reads, having none of its own; -1 = it
  // reads its own. nullptr: layers of the family share none.
  int (*shares_with)(const ModelConfig& config, int layer) = nullptr;
  // Every cache that a layer can have.
  std::span<const NamedCache> (*cache_names)();
  // Of the layers that run and what is around them.
  ModelGraph (*graph)(const ModelConfig& config);
  // Likewise; the graph names them.
  ModelWeights (*weights)(const ModelConfig& config);
  // The published name (WeightPart) of a tensor of a checkpoint that has another one; scales end in
  // .scale. What is no weight of the family stays as it is.
  std::string (*published_name)(std::string_view name);
  // Name under which exports have the embedding once more, as the head; nullptr = they have not.
  const char* head_copy;
  // What a second reading of a checkpoint looks at; ranks: the weights by rank.
  std::vector<SecondTarget> (*second_targets)(
      const ModelConfig& whole, const TensorParallel& parallel,
      const std::vector<std::shared_ptr<const Weights>>& ranks);
  std::span<const DealtNumber> dealt;
  // The numbers of an op's params struct: they follow from the model, its caches and the limits of
  // a step. Sessions fill them in, and so does who makes a call out of a capture.
  // Of an op of a layer (index among the layers that run) or after them. rows_per_block: of the
  // cache whose block table it reads, else 0.
  void (*set_layer_numbers)(as_op_id op, int layer, const ModelConfig& config,
                            std::int32_t rows_per_block, void* params);
  // Of an op before the layers.
  void (*set_step_numbers)(as_op_id op, const ModelConfig& config, const CacheLayout& layout,
                           std::int64_t token_budget, std::int64_t alignment, void* params);
  // The tensors that a step has beside the common ones (step_tensor.h), in the same order for every
  // model of the family.
  std::vector<StepTensor> (*step_tensors)(const ModelConfig& config, const CacheLayout& layout);
  // The same in logical rows, for the references: LogicalMetadata::own.
  void (*logical_lists)(const StepMetadata& step, const ModelConfig& config, LogicalMetadata& out);
  // Tensors beside weights that ops of every step are given, the same for as long as the program
  // runs; nullptr: none.
  std::vector<as_tensor> (*constants)(const ModelConfig& config) = nullptr;
  // Columns of those lists that grow with the longest request of a step.
  std::int64_t (*list_columns)(std::int64_t longest, const ModelConfig& config);
};

std::span<const Family* const> families();
const Family& family_of(const ModelConfig& config);

// The model with twice of each number that ranks share: what grows with them is dealt out.
ModelConfig with_twice_dealt(const ModelConfig& config);
// A model's graph, with the sums over ranks that it needs.
std::shared_ptr<const ModelGraph> model_graph(const ModelConfig& config);
// A small model with a layer of every type, and its graph.
ModelConfig example_model(const Family& family);
const ModelGraph& example_graph(const Family& family);
// How an op stands in the graphs of the first family that has it; nullptr for helper ops.
const Node* example_node(as_op_id op);
// The cache whose block table it reads in a layer of whichever type; AS_CACHE_ANY = of none.
CacheId table_cache(as_op_id op);

}  // namespace attnscope
