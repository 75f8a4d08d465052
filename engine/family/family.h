// What a family of models gives to the engine: one folder below engine/family/, entered in
// families.cpp.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "engine/family/op_graph.h"
#include "engine/metadata/step_metadata.h"

namespace attnscope {

struct Family {
  const char* name;  // its folder
  bool (*takes)(const ModelConfig& config);
  // A small model with a layer of every type.
  ModelConfig (*example)();
  // Of the layers that run and what is around them.
  ModelGraph (*graph)(const ModelConfig& config);
  // The numbers of an op's params struct: they follow from the model, its caches and the limits of
  // a step. Sessions fill them in, and so does who makes a call out of a capture.
  // Of an op of a layer (index among the layers that run) or after them. rows_per_block: of the
  // cache whose block table it reads, else 0.
  void (*set_layer_numbers)(as_op_id op, int layer, const ModelConfig& config,
                            std::int32_t rows_per_block, void* params);
  // Of an op before the layers.
  void (*set_step_numbers)(as_op_id op, const ModelConfig& config, const CacheLayout& layout,
                           std::int64_t token_budget, std::int64_t alignment, void* params);
  // A tensor of a step's metadata by the name that the graph has for it; absent where the step has
  // none.
  as_tensor (*step_tensor)(std::string_view name, StepMetadata& step, const ModelConfig& config,
                           const CacheLayout& layout);
};

std::span<const Family* const> families();
const Family& family_of(const ModelConfig& config);

// A model's graph, with the sums over ranks that it needs.
std::shared_ptr<const ModelGraph> model_graph(const ModelConfig& config);
// That of a family's example.
const ModelGraph& example_graph(const Family& family);

}  // namespace attnscope
