// The ops of the CPU lane, each as
//
//   void residual(const as_residual_params& p, const as_call* call, Check& check);
//
// Each checks its params completely before it writes a row of a cache; the params head has been
// checked by the caller. The list is that of op_ids.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/check.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/draft_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/lane.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/op_ids.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/step_params.h"

namespace attnscope::cpu {

#define AS_DECLARE(id, number, params, function) \
  void function(const params& p, const as_call* call, Check& check);
AS_FOR_EACH_KERNEL(AS_DECLARE)
#undef AS_DECLARE

}  // namespace attnscope::cpu
