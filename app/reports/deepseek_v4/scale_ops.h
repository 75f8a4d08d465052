// The ops of DeepSeek-V4 whose time says how a decode step grows with the context: attention of
// both compressed layer types, the indexer's scores and its selection.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "app/reports/scale.h"
#include "app/reports/scale_inputs.h"
#include "engine/session/step/op_params.h"

namespace attnscope {

struct ScaleOp {
  as_op_id op = AS_OP_SCHEDULE;
  ScaleLine line;                               // without points
  std::function<std::int64_t(std::int64_t)> x;  // of one request, by its tokens
  // Params of `calls` calls for requests of so many tokens, each on rows of its own.
  std::function<std::vector<OpParams>(ScaleInputs&, std::int64_t context, int calls)> make;
};

// requests: of one token a call. config: has a layer of each type, and FP8 index keys.
std::vector<ScaleOp> deepseek_v4_scale_ops(const ModelConfig& config, std::int64_t requests);

}  // namespace attnscope
