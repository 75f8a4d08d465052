// The ops of the references, by the lists of op_ids.h. An op takes its params struct and the
// precision of the lane, and throws BadInput when a tensor does not fit:
//
//   void residual(const as_residual_params& p, const Precision& precision);
//
// Those of integers and bytes are loops; the others are tensor programs in reference/torch/, called
// in the module that these are built into.
#pragma once

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/draft_params.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/op_ids.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/step_params.h"
#include "reference/precision.h"

namespace attnscope::reference {

#define AS_DECLARE(id, number, params, function) \
  void function(const params& p, const Precision& precision);
AS_FOR_EACH_DECISION(AS_DECLARE)
AS_FOR_EACH_KERNEL(AS_DECLARE)
AS_FOR_EACH_HELPER(AS_DECLARE)
#undef AS_DECLARE

// linear whose result stays in fp32.
void linear_fp32(const as_linear_params& p, const Precision& precision);

constexpr bool is_loop(as_op_id op) {
  switch (op) {
    case AS_OP_SCHEDULE:
    case AS_OP_BLOCK_TABLES:
    case AS_OP_SLOT_MAPPING:
    case AS_OP_SWA_INDEX:
    case AS_OP_C128_INDEX:
    case AS_OP_TOPK_TO_SLOTS:
    case AS_OP_COPY_BLOCKS:
    case AS_OP_LOCAL_BATCH:
    case AS_OP_CROSS_BATCH:
    case AS_OP_ATTENTION_PLAN:
    case AS_OP_EXCHANGE_ROWS:
    case AS_OP_SWAP_OUT:
    case AS_OP_SWAP_IN:
    case AS_OP_SEQUENCE_TABLE:
    case AS_OP_PAGE_INDICES:
    case AS_OP_COMPACT_TABLES:
    case AS_OP_PAD_ROWS:
      return true;
    default:
      return false;
  }
}

}  // namespace attnscope::reference
