// The order in which ops run, and how each one's params struct is filled from a frame.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/weights.h"
#include "engine/session/cache_source.h"
#include "engine/session/frame.h"
#include "engine/session/op_params.h"

namespace attnscope {

// Ops before the layers: c128_index only where the model has C128A layers.
std::span<const as_op_id> step_ops(const ModelConfig& config);
bool has_type(const ModelConfig& config, LayerType type);

// Ops of one layer in causal order.
std::span<const as_op_id> layer_ops(LayerType type);

// Ops after the layers.
std::span<const as_op_id> head_ops();

// What the ops of a step share.
struct OpContext {
  const ModelConfig* config = nullptr;
  const Weights* weights = nullptr;
  const std::vector<as_rope>* ropes = nullptr;  // by running layer, tables set
  as_tensor positions;                          // i64 [T]
  as_tensor request_of;                         // i32 [T]
  std::int64_t logits_width = 0;                // columns of the indexer logits this step
};

// Fills the struct of a layer op (AS_PHASE_LAYER) or head op (AS_PHASE_AFTER); outputs are made in
// the frame. Layer: index among the layers that run.
OpParams layer_op_params(as_op_id op, int layer, const OpContext& context, Frame& frame,
                         const CacheSource& source);

}  // namespace attnscope
