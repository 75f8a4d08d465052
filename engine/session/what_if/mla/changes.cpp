#include "engine/session/what_if/mla/changes.h"

#include "kernels/params/mla_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

bool transform_turned(const Session&, OpParams& params, ChangedInputs&) {
  std::int32_t& on = params.op() == AS_OP_INDEX_QUERY
                         ? params.get<as_index_query_params>().hadamard
                         : params.get<as_index_key_insert_params>().hadamard;
  on = on != 0 ? 0 : 1;
  return true;
}

bool scale_rule_turned(const Session&, OpParams& params, ChangedInputs&) {
  std::int32_t* rule = nullptr;
  if (params.op() == AS_OP_MLA_KV_INSERT) {
    auto& p = params.get<as_mla_kv_insert_params>();
    if (p.cache.record != AS_RECORD_LATENT_656) return false;  // it has no scales
    rule = &p.scale_rule;
  } else if (params.op() == AS_OP_INDEX_QUERY) {
    rule = &params.get<as_index_query_params>().scale_rule;
  } else {
    rule = &params.get<as_index_key_insert_params>().scale_rule;
  }
  *rule = *rule == AS_SCALE_FLOAT ? AS_SCALE_POWER_OF_TWO : AS_SCALE_FLOAT;
  return true;
}

bool no_key_bias(const Session&, OpParams& params, ChangedInputs& memory) {
  as_tensor& bias = params.tensor_named("bias");
  memory.halves.assign(static_cast<std::size_t>(bias.shape[0]), bf16_t{0});
  bias = make_tensor(memory.halves.data(), {bias.shape[0]});
  return true;
}

// The newest row that each token has selected: of those that ascend, the last.
bool newest_alone(const Session&, OpParams& params, ChangedInputs& memory) {
  auto& p = params.get<as_sparse_mla_attention_params>();
  const std::int64_t tokens = p.topk_length.shape[0];
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t len = *at<std::int32_t>(p.topk_length, t);
    memory.integers.push_back(len > 0 ? *at<std::int32_t>(p.indices, t, len - 1) : -1);
    memory.more.push_back(len > 0 ? 1 : 0);
  }
  p.indices = make_tensor(memory.integers.data(), {tokens, 1});
  p.topk_length = make_tensor(memory.more.data(), {tokens});
  return true;
}

constexpr Change kTransformTurned = {"Hadamard turned over",
                                     "on where it was off, off where it was on", transform_turned};
constexpr Change kScaleTurned = {"scale rule turned over",
                                 "powers of two where scales were any number, or the other way",
                                 scale_rule_turned};

}  // namespace

std::vector<Change> mla_changes(as_op_id op) {
  switch (op) {
    case AS_OP_MLA_Q_ABSORB:
      return {kNoRotation, kYarnTurned};
    case AS_OP_MLA_KV_INSERT:
      return {kNoRotation, kYarnTurned, kScaleTurned};
    case AS_OP_INDEX_QUERY:
      return {kNoRotation, kYarnTurned, kTransformTurned, kScaleTurned};
    case AS_OP_INDEX_KEY_INSERT:
      return {kUnitWeights, kNoRotation,
              kYarnTurned,  kTransformTurned,
              kScaleTurned, {"no key bias", "the LayerNorm adds nothing", no_key_bias}};
    case AS_OP_SPARSE_MLA_ATTENTION:
      return {{"newest row alone", "the last row that each token has selected", newest_alone}};
    default:
      return {};
  }
}

}  // namespace attnscope
