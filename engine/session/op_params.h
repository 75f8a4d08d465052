// The params struct of any op, and its taps by the op table.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/op_table.h"
#include "kernels/params/step_params.h"

namespace attnscope {

// One of the params structs, with the id that says which. Copyable like the structs themselves.
class OpParams {
 public:
  OpParams() { std::memset(&storage_, 0, sizeof(storage_)); }

  // A copy of a whole struct of this op.
  static OpParams of(as_op_id op, const void* params) {
    OpParams out;
    out.op_ = op;
    std::memcpy(&out.storage_, params, out.info().params_size);
    return out;
  }

  // Fills in the head of a fresh struct S for op.
  template <class S>
  S& init(as_op_id op) {
    static_assert(sizeof(S) <= sizeof(Storage));
    std::memset(&storage_, 0, sizeof(storage_));
    op_ = op;
    S& params = get<S>();
    params.head.struct_size = sizeof(S);
    params.head.version = AS_PARAMS_VERSION;
    return params;
  }

  template <class S>
  S& get() {
    return *reinterpret_cast<S*>(&storage_);
  }
  template <class S>
  const S& get() const {
    return *reinterpret_cast<const S*>(&storage_);
  }

  as_op_id op() const { return op_; }
  const as_op_info& info() const { return *as_op_find(op_); }
  const void* data() const { return &storage_; }

  as_tensor& tensor(std::size_t offset) {
    return *reinterpret_cast<as_tensor*>(reinterpret_cast<char*>(&storage_) + offset);
  }
  const as_tensor& tensor(std::size_t offset) const {
    return *reinterpret_cast<const as_tensor*>(reinterpret_cast<const char*>(&storage_) + offset);
  }
  as_cache& cache(std::size_t offset) {
    return *reinterpret_cast<as_cache*>(reinterpret_cast<char*>(&storage_) + offset);
  }
  const as_cache& cache(std::size_t offset) const {
    return *reinterpret_cast<const as_cache*>(reinterpret_cast<const char*>(&storage_) + offset);
  }

 private:
  union Storage {
    as_schedule_params schedule;
    as_block_tables_params block_tables;
    as_slot_mapping_params slot_mapping;
    as_swa_index_params swa_index;
    as_c128_index_params c128_index;
    as_sample_params sample;
    as_rms_norm_params rms_norm;
    as_linear_params linear;
    as_q_kv_norm_params q_kv_norm;
    as_grouped_linear_params grouped_linear;
    as_residual_params residual;
    as_q_rope_kv_insert_params q_rope_kv_insert;
    as_sparse_attention_params sparse_attention;
    as_inverse_rope_params inverse_rope;
    as_compressor_state_params compressor_state;
    as_compress_insert_params compress_insert;
    as_indexer_q_params indexer_q;
    as_indexer_logits_params indexer_logits;
    as_indexer_topk_params indexer_topk;
    as_topk_to_slots_params topk_to_slots;
  };
  Storage storage_;
  as_op_id op_ = AS_OP_SCHEDULE;
};

// The tolerance class of an op's output: that of the op table, but of a projection in FP8 one of
// their own. params: of the op with this info.
inline const char* tolerance_class(const as_op_info& info, const void* params,
                                   const as_tap_info& tap) {
  if (tap.rule == nullptr || std::strcmp(tap.rule, "dense") != 0) return tap.rule;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& other = info.taps[i];
    if (std::strcmp(other.name, "weight_scale") != 0) continue;
    const char* at = static_cast<const char*>(params) + other.offset;
    if (reinterpret_cast<const as_tensor*>(at)->data != nullptr) return "dense_fp8";
  }
  return tap.rule;
}
inline const char* tolerance_class(const OpParams& params, const as_tap_info& tap) {
  return tolerance_class(params.info(), params.data(), tap);
}

}  // namespace attnscope
