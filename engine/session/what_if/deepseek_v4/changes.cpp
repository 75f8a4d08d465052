#include "engine/session/what_if/deepseek_v4/changes.h"

#include <cmath>

#include "engine/trace/compare.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

bool hadamard_turned(const Session&, OpParams& params, ChangedInputs&) {
  if (params.op() == AS_OP_INDEXER_Q) {
    auto& p = params.get<as_indexer_q_params>();
    p.hadamard = p.hadamard != 0 ? 0 : 1;
  } else {
    auto& p = params.get<as_compress_insert_params>();
    p.hadamard = p.hadamard != 0 ? 0 : 1;
  }
  return true;
}

bool pooling_rounded(const Session&, OpParams& params, ChangedInputs&) {
  auto& p = params.get<as_compress_insert_params>();
  p.round_pooled = p.round_pooled != 0 ? 0 : 1;
  return true;
}

bool no_position_bias(const Session&, OpParams& params, ChangedInputs& memory) {
  auto& p = params.get<as_compressor_state_params>();
  memory.floats.assign(static_cast<std::size_t>(p.ape.shape[0] * p.ape.shape[1]), 0.0f);
  p.ape = make_tensor(memory.floats.data(), {p.ape.shape[0], p.ape.shape[1]});
  return true;
}

// |w|: then every head adds, and a missing ReLU still shows while a sign does not.
bool positive_scores(const Session&, OpParams& params, ChangedInputs& memory) {
  auto& p = params.get<as_indexer_topk_params>();
  const std::int64_t tokens = p.logits.shape[0], width = p.logits.shape[1];
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < width; ++c) {
      memory.floats.push_back(static_cast<float>(std::fabs(element(p.logits, t, c))));
    }
  }
  p.logits = make_tensor(memory.floats.data(), {tokens, width});
  return true;
}

constexpr Change kHadamardTurned = {"Hadamard turned over",
                                    "on where it was off, off where it was on", hadamard_turned};
constexpr Change kPoolingRounded = {"pooling rounding turned over",
                                    "pooled values rounded to bf16, or not", pooling_rounded};

}  // namespace

std::vector<Change> deepseek_v4_changes(as_op_id op) {
  switch (op) {
    case AS_OP_INDEXER_Q:
      return {kNoRotation, kYarnTurned, kHadamardTurned};
    case AS_OP_COMPRESS_INSERT:
      return {kUnitWeights, kYarnTurned, kPoolingRounded};
    case AS_OP_INDEXER_COMPRESS_INSERT:
      return {kUnitWeights, kYarnTurned, kHadamardTurned, kPoolingRounded};
    case AS_OP_COMPRESSOR_STATE:
    case AS_OP_INDEXER_COMPRESSOR_STATE:
      return {{"no position bias", "ape is 0", no_position_bias}};
    case AS_OP_INDEXER_TOPK:
      return {{"positive scores", "the magnitudes of the scores", positive_scores}};
    default:
      return {};
  }
}

}  // namespace attnscope
