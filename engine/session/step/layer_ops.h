// How an op's params struct is filled: what the model's graph binds its taps to, from a frame,
// weights and caches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/family/family.h"
#include "engine/model/model_config.h"
#include "engine/model/weights.h"
#include "engine/session/step/cache_source.h"
#include "engine/session/step/frame.h"
#include "engine/session/step/op_params.h"

namespace attnscope {

// What the ops of a step share.
struct OpContext {
  const ModelGraph* graph = nullptr;
  const ModelConfig* config = nullptr;
  const Weights* weights = nullptr;
  int peer = -1;  // another rank, whose ops these are; -1 = the session's own
  const std::vector<as_rope>* ropes = nullptr;  // by running layer, tables set
  as_tensor positions;                          // i64 [T]
  as_tensor token_to_req;                       // i32 [T]
  as_tensor seq_lens;                           // i32 [R]
  as_tensor query_start_loc;                    // i32 [R+1]
  as_tensor source_lens;                        // i32 [R]
  std::int64_t logits_width = 0;                // columns of scores this step
};

// Fills the struct of an op of a layer or after the layers (layer -1); outputs are made in the
// frame. Layer: index among the layers that run.
OpParams layer_op_params(as_op_id op, int layer, const OpContext& context, Frame& frame,
                         const CacheSource& source);

// Of an op before the layers: tensors of the step, which must outlive the params.
OpParams step_op_params(as_op_id op, const ModelGraph& graph, StepMetadata& step,
                        const ModelConfig& config, const CacheLayout& layout,
                        std::int64_t token_budget, std::int64_t alignment);

// Those of them that make slots and lists of the step's tables: kernels like the ops of layers.
std::vector<as_op_id> list_ops(const ModelGraph& graph);
OpParams list_op_params(as_op_id op, const ModelGraph& graph, StepMetadata& step,
                        const ModelConfig& config, const CacheLayout& layout);

}  // namespace attnscope
