#include "engine/opcase/case_op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/step_params.h"

namespace attnscope {
namespace {

#define INTEGER(S, field) \
  { #field, FieldKind::kInteger, offsetof(S, field) }
#define RULE(S, field) \
  { #field, FieldKind::kInteger, offsetof(S, field), true }
#define REAL(S, field) \
  { #field, FieldKind::kReal, offsetof(S, field) }
#define ROPE(S, field) \
  { #field, FieldKind::kRope, offsetof(S, field) }

constexpr ParamField kSchedule[] = {INTEGER(as_schedule_params, token_budget),
                                    INTEGER(as_schedule_params, alignment)};
constexpr ParamField kSlotMapping[] = {INTEGER(as_slot_mapping_params, mla_group)};
constexpr ParamField kSwaIndex[] = {INTEGER(as_swa_index_params, block_size),
                                    INTEGER(as_swa_index_params, window)};
constexpr ParamField kC128Index[] = {INTEGER(as_c128_index_params, ratio),
                                     INTEGER(as_c128_index_params, rows_per_block)};
constexpr ParamField kRmsNorm[] = {REAL(as_rms_norm_params, eps)};
constexpr ParamField kQKvNorm[] = {REAL(as_q_kv_norm_params, eps)};
constexpr ParamField kQRopeKvInsert[] = {
    ROPE(as_q_rope_kv_insert_params, rope), REAL(as_q_rope_kv_insert_params, eps),
    INTEGER(as_q_rope_kv_insert_params, rows_given), RULE(as_q_rope_kv_insert_params, q_norm),
    RULE(as_q_rope_kv_insert_params, scale_floor)};
constexpr ParamField kCompressorState[] = {INTEGER(as_compressor_state_params, ratio)};
constexpr ParamField kCompressInsert[] = {ROPE(as_compress_insert_params, rope),
                                          REAL(as_compress_insert_params, eps),
                                          INTEGER(as_compress_insert_params, ratio),
                                          INTEGER(as_compress_insert_params, hadamard),
                                          INTEGER(as_compress_insert_params, round_pooled),
                                          INTEGER(as_compress_insert_params, rows_given),
                                          RULE(as_compress_insert_params, scale_floor),
                                          RULE(as_compress_insert_params, fp4_rule)};
constexpr ParamField kIndexerQ[] = {
    ROPE(as_indexer_q_params, rope),        INTEGER(as_indexer_q_params, format),
    INTEGER(as_indexer_q_params, hadamard), INTEGER(as_indexer_q_params, rows_given),
    RULE(as_indexer_q_params, scale_floor), RULE(as_indexer_q_params, fp4_rule)};
constexpr ParamField kIndexerLogits[] = {
    {"score_rule", FieldKind::kInteger,
     offsetof(as_indexer_logits_params, weights) + offsetof(as_tensor, reserved), true}};
constexpr ParamField kTopkToSlots[] = {INTEGER(as_topk_to_slots_params, rows_per_block)};
constexpr ParamField kSparseAttention[] = {REAL(as_sparse_attention_params, scale)};
constexpr ParamField kInverseRope[] = {ROPE(as_inverse_rope_params, rope)};
constexpr ParamField kRopeKvInsert[] = {
    ROPE(as_rope_kv_insert_params, rope), REAL(as_rope_kv_insert_params, eps),
    INTEGER(as_rope_kv_insert_params, style), INTEGER(as_rope_kv_insert_params, weight_plus_one),
    INTEGER(as_rope_kv_insert_params, rows_given)};
constexpr ParamField kPagedAttention[] = {
    REAL(as_paged_attention_params, scale), REAL(as_paged_attention_params, soft_cap),
    INTEGER(as_paged_attention_params, causal), INTEGER(as_paged_attention_params, window),
    INTEGER(as_paged_attention_params, num_splits)};
constexpr ParamField kMergeStates[] = {INTEGER(as_merge_states_params, base_2)};
constexpr ParamField kCopyBlocks[] = {INTEGER(as_copy_blocks_params, exchange)};
constexpr ParamField kWorkspaceAttention[] = {REAL(as_workspace_attention_params, scale)};
constexpr ParamField kInverseRopeQuantise[] = {ROPE(as_inverse_rope_quantise_params, rope)};

std::span<const ParamField> fields_of(std::int32_t id) {
  switch (id) {
    case AS_OP_SCHEDULE:
      return kSchedule;
    case AS_OP_SLOT_MAPPING:
      return kSlotMapping;
    case AS_OP_SWA_INDEX:
      return kSwaIndex;
    case AS_OP_C128_INDEX:
      return kC128Index;
    case AS_OP_ATTN_NORM:
    case AS_OP_FINAL_NORM:
      return kRmsNorm;
    case AS_OP_Q_KV_NORM:
      return kQKvNorm;
    case AS_OP_Q_ROPE_KV_INSERT:
      return kQRopeKvInsert;
    case AS_OP_COMPRESSOR_STATE:
    case AS_OP_INDEXER_COMPRESSOR_STATE:
      return kCompressorState;
    case AS_OP_COMPRESS_INSERT:
    case AS_OP_INDEXER_COMPRESS_INSERT:
      return kCompressInsert;
    case AS_OP_INDEXER_Q:
      return kIndexerQ;
    case AS_OP_INDEXER_LOGITS:
      return kIndexerLogits;
    case AS_OP_TOPK_TO_SLOTS:
      return kTopkToSlots;
    case AS_OP_SPARSE_ATTENTION:
      return kSparseAttention;
    case AS_OP_INVERSE_ROPE:
      return kInverseRope;
    case AS_OP_ROPE_KV_INSERT:
      return kRopeKvInsert;
    case AS_OP_PAGED_ATTENTION:
      return kPagedAttention;
    case AS_OP_MERGE_STATES:
      return kMergeStates;
    case AS_OP_COPY_BLOCKS:
      return kCopyBlocks;
    case AS_OP_WORKSPACE_ATTENTION:
      return kWorkspaceAttention;
    case AS_OP_INVERSE_ROPE_QUANTISE:
      return kInverseRopeQuantise;
    default:
      return {};
  }
}

}  // namespace

std::optional<CaseOp> find_case_op(std::int32_t id) {
  const as_op_info* op = as_op_find(id);
  if (op == nullptr) return std::nullopt;
  return CaseOp{op->name,        op->summary,
                op->id,          op->phase == AS_PHASE_NONE,
                op->params_size, {op->taps, op->num_taps},
                fields_of(id)};
}

Result<CaseOp> case_op_by_name(std::string_view name) {
  std::vector<std::string> names;
  for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
    if (name == op->name) return *find_case_op(op->id);
    names.emplace_back(op->name);
  }
  return bad_input(fmt::format("unknown op \"{}\"", name),
                   fmt::format("ops: {}", fmt::join(names, ", ")));
}

bool reads_tap(const CaseOp& op, const as_tap_info& tap, const void* params) {
  if (tap.direction == AS_TAP_IN) return true;
  switch (op.id) {
    case AS_OP_Q_ROPE_KV_INSERT:
      return tap.offset == offsetof(as_q_rope_kv_insert_params, kv_row) &&
             static_cast<const as_q_rope_kv_insert_params*>(params)->rows_given != 0;
    case AS_OP_ROPE_KV_INSERT:
      return tap.offset == offsetof(as_rope_kv_insert_params, k_row) &&
             static_cast<const as_rope_kv_insert_params*>(params)->rows_given != 0;
    case AS_OP_COMPRESS_INSERT:
    case AS_OP_INDEXER_COMPRESS_INSERT:
      return tap.offset == offsetof(as_compress_insert_params, row) &&
             static_cast<const as_compress_insert_params*>(params)->rows_given != 0;
    case AS_OP_INDEXER_Q:
      return tap.offset == offsetof(as_indexer_q_params, q_row) &&
             static_cast<const as_indexer_q_params*>(params)->rows_given != 0;
    default:
      return false;
  }
}

}  // namespace attnscope
