#include "kernels/cpu/cpu_lane.h"

#include <cstdio>
#include <new>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/simd/simd.h"

namespace attnscope::cpu {
namespace {

template <class Params>
using OpBody = void (*)(const Params&, const as_call*, Check&);

// What the op table calls: checks the head, keeps exceptions inside.
template <as_op_id Op, class Params, OpBody<Params> kBody>
std::int32_t entry(const void* params, const as_call* call, as_error* error) {
  Check check(Op, error);
  if (!check.head(params, sizeof(Params))) return check.status();
  if (call != nullptr && call->struct_size != sizeof(as_call)) {
    check.fail(
        "as_call has struct_size %u, this lane was built for %zu; rebuild both sides with "
        "the same kernels/params headers",
        call->struct_size, sizeof(as_call));
    return check.status();
  }
  try {
    kBody(*static_cast<const Params*>(params), call, check);
  } catch (const std::bad_alloc&) {
    check.fail("out of memory; use fewer tokens per step");
  }
  return check.status();
}

as_lane make_lane() {
  as_lane lane{};
  lane.struct_size = sizeof(as_lane);
  lane.version = AS_LANE_VERSION;
  lane.name = "cpu";
  lane.description = "Every op on the byte-exact caches, on host threads with SIMD.";
#define AS_ENTRY(id, params, body) lane.ops[id] = entry<id, params, body>
  AS_ENTRY(AS_OP_SLOT_MAPPING, as_slot_mapping_params, slot_mapping);
  AS_ENTRY(AS_OP_SWA_INDEX, as_swa_index_params, swa_index);
  AS_ENTRY(AS_OP_C128_INDEX, as_c128_index_params, c128_index);
  AS_ENTRY(AS_OP_ATTN_NORM, as_rms_norm_params, rms_norm);
  AS_ENTRY(AS_OP_Q_KV_A_PROJ, as_linear_params, linear);
  AS_ENTRY(AS_OP_Q_KV_NORM, as_q_kv_norm_params, q_kv_norm);
  AS_ENTRY(AS_OP_Q_B_PROJ, as_linear_params, linear);
  AS_ENTRY(AS_OP_Q_ROPE_KV_INSERT, as_q_rope_kv_insert_params, q_rope_kv_insert);
  AS_ENTRY(AS_OP_COMPRESSOR_PROJ, as_linear_params, linear);
  AS_ENTRY(AS_OP_COMPRESSOR_STATE, as_compressor_state_params, compressor_state);
  AS_ENTRY(AS_OP_COMPRESS_INSERT, as_compress_insert_params, compress_insert);
  AS_ENTRY(AS_OP_INDEXER_COMPRESSOR_PROJ, as_linear_params, linear);
  AS_ENTRY(AS_OP_INDEXER_COMPRESSOR_STATE, as_compressor_state_params, compressor_state);
  AS_ENTRY(AS_OP_INDEXER_COMPRESS_INSERT, as_compress_insert_params, compress_insert);
  AS_ENTRY(AS_OP_INDEXER_Q_PROJ, as_linear_params, linear);
  AS_ENTRY(AS_OP_INDEXER_Q, as_indexer_q_params, indexer_q);
  AS_ENTRY(AS_OP_INDEXER_WEIGHTS_PROJ, as_linear_params, linear);
  AS_ENTRY(AS_OP_INDEXER_LOGITS, as_indexer_logits_params, indexer_logits);
  AS_ENTRY(AS_OP_INDEXER_TOPK, as_indexer_topk_params, indexer_topk);
  AS_ENTRY(AS_OP_TOPK_TO_SLOTS, as_topk_to_slots_params, topk_to_slots);
  AS_ENTRY(AS_OP_SPARSE_ATTENTION, as_sparse_attention_params, sparse_attention);
  AS_ENTRY(AS_OP_INVERSE_ROPE, as_inverse_rope_params, inverse_rope);
  AS_ENTRY(AS_OP_WO_A, as_grouped_linear_params, grouped_linear);
  AS_ENTRY(AS_OP_WO_B, as_linear_params, linear);
  AS_ENTRY(AS_OP_RESIDUAL, as_residual_params, residual);
  AS_ENTRY(AS_OP_FINAL_NORM, as_rms_norm_params, rms_norm);
  AS_ENTRY(AS_OP_LM_HEAD, as_linear_params, linear);
  AS_ENTRY(AS_OP_SAMPLE, as_sample_params, sample);
#undef AS_ENTRY
  return lane;
}

}  // namespace

const as_lane* lane() {
  static const as_lane kLane = make_lane();
  return &kLane;
}

const char* simd_level() { return simd::kernels().name; }

}  // namespace attnscope::cpu
